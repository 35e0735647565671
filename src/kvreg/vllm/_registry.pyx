# cython: binding=False
"""Native lookups in front of those of vLLM's KVCacheSpecRegistry.

What is remembered is which entry of vLLM's dict the walk along a class's MRO ends at, and only
as long as all that the original code reads on its way is provably as it was then: the globals
of its module, the builtins, the dict of specs, the registry class, the class of the spec and
the code of the original functions. Where a metaclass or an entry is of a type of its own,
nothing is remembered. And wherever nothing is remembered the original function runs, so it is
the one that bootstraps, raises and logs.
"""

cimport cython
from cpython.object cimport PyObject, PyTypeObject


cdef extern from "Python.h":
    # Declared anew, as the classes' and the tuples' references are borrowed here.
    ctypedef struct ClassObject "PyTypeObject":
        PyObject *tp_mro
        void *tp_getattro

    ctypedef struct FunctionObject "PyFunctionObject":
        PyObject *func_code
        PyObject *func_defaults

    PyTypeObject PyType_Type
    PyTypeObject PyDict_Type
    void *PyObject_GenericGetAttr
    PyTypeObject *Py_TYPE(PyObject *obj) noexcept
    Py_ssize_t PyTuple_GET_SIZE(PyObject *items) noexcept
    PyObject *PyTuple_GET_ITEM(PyObject *items, Py_ssize_t i) noexcept
    Py_ssize_t PyDict_Size(PyObject *mapping) noexcept
    int PyDict_Next(
        PyObject *mapping, Py_ssize_t *position, PyObject **key, PyObject **value
    ) noexcept
    PyObject *PyDict_GetItemWithError(PyObject *mapping, PyObject *key) except? NULL
    object PyObject_GetAttr(PyObject *obj, PyObject *name)
    object PyObject_CallFunctionObjArgs(PyObject *function, ...)


cdef extern from "python/type_tag.h":
    int kvreg_type_tag_init() except -1
    void kvreg_type_tag_assign(PyTypeObject *cls) noexcept
    unsigned int kvreg_type_tag(PyTypeObject *cls) noexcept
    unsigned int kvreg_tag_series() noexcept


cdef extern from "python/type_cache.h":
    ctypedef struct kvreg_type_cache:
        pass

    ctypedef struct kvreg_type_cache_entry:
        PyObject *value

    const kvreg_type_cache_entry *kvreg_type_cache_find(
        kvreg_type_cache *cache, PyTypeObject *cls
    ) noexcept
    void kvreg_type_cache_store(
        kvreg_type_cache *cache, PyTypeObject *cls, PyObject *value
    ) noexcept
    void kvreg_type_cache_forget(kvreg_type_cache *cache) noexcept


cdef extern from "python/dict_version.h":
    int kvreg_dict_version_init() except -1
    int kvreg_dict_watch(PyObject *mapping) except -1
    unsigned long long kvreg_dict_version(PyObject *mapping) noexcept


cdef extern from "python/front.h":
    ctypedef object (*kvreg_front_answer)(PyObject *context, PyObject *argument)
    int kvreg_front_init() except -1
    object kvreg_front_new(
        object owner, object original, kvreg_front_answer answer, object context
    )


kvreg_type_tag_init()
kvreg_dict_version_init()
kvreg_front_init()

cdef str MANAGER = "manager_class"
cdef str BASE = "uniform_type_base_spec"


cdef struct Function:
    # A function whose behaviour is known, and what it would have lost if someone changed it.
    FunctionObject *function
    PyObject *code
    PyObject *defaults


cdef struct Snapshot:
    # When everything that the original functions read was as they expect it. It is void if
    # `registry_tag` is 0.
    unsigned int tag_series
    unsigned int registry_tag
    unsigned int metadata_tag
    unsigned long long globals_version
    unsigned long long builtins_version
    unsigned long long specs_version
    PyObject *specs  # borrowed from the module's globals


@cython.no_gc_clear
cdef class Lookups:
    """The state behind the fronts of one registry class."""

    cdef object registry
    cdef object metadata_class
    cdef dict globals
    cdef dict builtins
    # What the registry class's dict has to have for the fronts to answer; keeps them alive.
    cdef dict attributes
    # The original functions, None where there is no front for one.
    cdef object get_manager_class
    cdef object get_uniform_type_base_spec
    cdef object check
    cdef Function functions[4]
    cdef int function_count
    # Keeps alive what `functions` point to: another object never comes to such an address.
    cdef list compared
    cdef Snapshot snapshot
    cdef kvreg_type_cache cache

    def __cinit__(self, registry, metadata_class, functions):
        self.registry = registry
        self.metadata_class = metadata_class
        self.get_manager_class = functions.get("get_manager_class")
        self.get_uniform_type_base_spec = functions.get("get_uniform_type_base_spec")
        self.check = functions.get("check_kv_cache_spec_registry")
        self.globals = functions["_ensure_registered"].__globals__
        self.builtins = functions["_ensure_registered"].__builtins__
        self.attributes = {"_ensure_registered": vars(registry)["_ensure_registered"]}
        self.compared = []
        self.function_count = len(functions)
        for i, name in enumerate(sorted(functions)):
            self.functions[i] = known(functions[name], self.compared)
        kvreg_type_cache_forget(&self.cache)

    cdef inline bint is_current(self) noexcept:
        """Whether what the snapshot tells still holds. Runs no Python code."""
        return (
            self.has_same_surroundings()  # else the dict of specs may be gone
            and kvreg_dict_version(self.snapshot.specs) == self.snapshot.specs_version
        )

    cdef inline bint has_same_surroundings(self) noexcept:
        """Whether it holds apart from what the dict of specs has in it."""
        cdef const Snapshot *then = &self.snapshot
        return (
            then.registry_tag != 0
            and kvreg_type_tag(<PyTypeObject *>self.registry) == then.registry_tag
            and kvreg_type_tag(<PyTypeObject *>self.metadata_class) == then.metadata_tag
            and kvreg_tag_series() == then.tag_series
            and kvreg_dict_version(<PyObject *>self.globals) == then.globals_version
            and kvreg_dict_version(<PyObject *>self.builtins) == then.builtins_version
            and self.has_same_functions()
        )

    cdef inline bint has_same_functions(self) noexcept:
        cdef int i
        for i in range(self.function_count):
            if not is_unchanged(&self.functions[i]):
                return False
        return True

    cdef inline const kvreg_type_cache_entry *find(self, PyTypeObject *cls) noexcept:
        """Return what is remembered for a class, or NULL. Runs no Python code."""
        if self.is_current():
            return kvreg_type_cache_find(&self.cache, cls)
        return NULL

    cdef int learn(self, PyTypeObject *cls) except -1:
        """Remember the answer for a class, if that can be relied on."""
        cdef object kept = <object>cls
        cdef PyObject *entry
        for tagged in (self.registry, self.metadata_class, kept):
            kvreg_type_tag_assign(<PyTypeObject *>tagged)  # can run Python code
        if not self.is_current():
            kvreg_type_cache_forget(&self.cache)
            self.take_snapshot()
        # From here on no Python code runs, so what is current stays so.
        if not self.is_current() or not has_plain_bases(cls):
            return 0
        entry = walk(self.snapshot.specs, cls)
        if entry == NULL or Py_TYPE(entry) == <PyTypeObject *>self.metadata_class:
            kvreg_type_cache_store(&self.cache, cls, entry)
        return 0

    cdef int take_snapshot(self) except -1:
        """Take a snapshot, or leave a void one. It may be out of date when this returns."""
        cdef Snapshot now
        cdef bint only_specs_changed = self.has_same_surroundings()
        cdef PyObject *specs = PyDict_GetItemWithError(
            <PyObject *>self.globals, <PyObject *>"_REGISTRY_KVCACHESPEC_LIST"
        )
        self.snapshot.registry_tag = 0
        if specs == NULL or Py_TYPE(specs) != &PyDict_Type:
            return 0
        kvreg_dict_watch(<PyObject *>self.globals)
        kvreg_dict_watch(<PyObject *>self.builtins)
        kvreg_dict_watch(specs)
        now = Snapshot(
            tag_series=kvreg_tag_series(),
            registry_tag=kvreg_type_tag(<PyTypeObject *>self.registry),
            metadata_tag=kvreg_type_tag(<PyTypeObject *>self.metadata_class),
            globals_version=kvreg_dict_version(<PyObject *>self.globals),
            builtins_version=kvreg_dict_version(<PyObject *>self.builtins),
            specs_version=kvreg_dict_version(specs),
            specs=specs,
        )
        if now.metadata_tag == 0 or not has_plain_keys(specs):
            return 0
        # A garbage collection, and so any Python code, may run from here on. It would leave the
        # snapshot out of date.
        if only_specs_changed or self.is_as_known():
            self.snapshot = now
        return 0

    cdef bint is_as_known(self) except -1:
        """Whether the names that the original functions use mean what they meant."""
        attributes = vars(self.registry)
        for name, attribute in self.attributes.items():
            if attributes.get(name) is not attribute:
                return False
        return (
            "type" not in self.globals
            and self.builtins.get("type") is type
            and has_plain_attributes(<PyTypeObject *>self.metadata_class)
        )

    cdef object look_up(self, PyObject *spec, PyObject *name, PyObject *original):
        cdef PyTypeObject *cls = Py_TYPE(spec)
        cdef const kvreg_type_cache_entry *known = self.find(cls)
        cdef object metadata
        if known == NULL:
            answer = PyObject_CallFunctionObjArgs(
                original, <PyObject *>self.registry, spec, <void *>NULL
            )
            self.learn(Py_TYPE(spec))
            return answer
        if known.value == NULL:
            return None
        metadata = <object>known.value  # its dict may give it up before the attribute is read
        return PyObject_GetAttr(<PyObject *>metadata, name)

    cdef bint all_are_registered(self, PyObject *specs) except -1:
        """Whether each spec has a manager and a base, as far as is remembered."""
        cdef Py_ssize_t position = 0
        cdef PyObject *spec
        cdef const kvreg_type_cache_entry *known
        while PyDict_Next(specs, &position, NULL, &spec):
            known = self.find(Py_TYPE(spec))
            if known == NULL or known.value == NULL or not is_complete(<object>known.value):
                return False
        return True


cdef Function known(object function, list kept):
    """Return how a function is now; what that points to is added to `kept`."""
    cdef Function now
    now.function = <FunctionObject *>function
    now.code = now.function.func_code
    now.defaults = now.function.func_defaults
    code = <object>now.code
    defaults = <object>now.defaults if now.defaults != NULL else None
    kept.extend((function, code, defaults))
    return now


cdef inline bint is_unchanged(const Function *known) noexcept:
    return (
        known.function.func_code == known.code
        and known.function.func_defaults == known.defaults
    )


cdef inline bint is_plain(PyObject *obj) noexcept:
    """Whether this is a class that is hashed and compared by identity.

    It is so ever after, as CPython lets nobody change the metaclass of such a class.
    """
    return Py_TYPE(obj) == &PyType_Type


cdef inline bint has_plain_bases(PyTypeObject *cls) noexcept:
    cdef PyObject *mro = (<ClassObject *>cls).tp_mro
    cdef Py_ssize_t i
    if mro == NULL:  # the class is still being made
        return False
    for i in range(PyTuple_GET_SIZE(mro)):
        if not is_plain(PyTuple_GET_ITEM(mro, i)):
            return False
    return True


cdef bint has_plain_keys(PyObject *specs) noexcept:
    """Whether a dict of specs has entries, all with plain classes as their keys."""
    cdef Py_ssize_t position = 0
    cdef PyObject *key
    while PyDict_Next(specs, &position, &key, NULL):
        if not is_plain(key):
            return False
    return PyDict_Size(specs) > 0


cdef bint has_plain_attributes(PyTypeObject *metadata_class) except -1:
    """Whether the attributes of its instances are what stands in their dicts."""
    if (
        not is_plain(<PyObject *>metadata_class)
        or (<ClassObject *>metadata_class).tp_getattro != <void *>PyObject_GenericGetAttr
    ):
        return False
    for base in <tuple>(<ClassObject *>metadata_class).tp_mro:
        if MANAGER in vars(base) or BASE in vars(base):
            return False
    return True


cdef bint is_complete(object metadata) except -1:
    return (  # in the order of the original, as an attribute may have been deleted
        PyObject_GetAttr(<PyObject *>metadata, <PyObject *>BASE) is not None
        and PyObject_GetAttr(<PyObject *>metadata, <PyObject *>MANAGER) is not None
    )


cdef PyObject *walk(PyObject *specs, PyTypeObject *cls) except? NULL:
    """Return the entry of the nearest plain class of the MRO, or NULL."""
    cdef PyObject *mro = (<ClassObject *>cls).tp_mro
    cdef PyObject *entry
    cdef Py_ssize_t i
    for i in range(PyTuple_GET_SIZE(mro)):
        entry = PyDict_GetItemWithError(specs, PyTuple_GET_ITEM(mro, i))
        if entry != NULL:
            return entry
    return NULL


cdef object get_manager_class(PyObject *context, PyObject *spec):
    cdef Lookups lookups = <Lookups>context
    return lookups.look_up(spec, <PyObject *>MANAGER, <PyObject *>lookups.get_manager_class)


cdef object get_uniform_type_base_spec(PyObject *context, PyObject *spec):
    cdef Lookups lookups = <Lookups>context
    return lookups.look_up(
        spec, <PyObject *>BASE, <PyObject *>lookups.get_uniform_type_base_spec
    )


cdef object check_kv_cache_spec_registry(PyObject *context, PyObject *specs):
    cdef Lookups lookups = <Lookups>context
    if (
        Py_TYPE(specs) == &PyDict_Type
        and lookups.is_current()
        and lookups.all_are_registered(specs)
    ):
        return None
    return PyObject_CallFunctionObjArgs(
        <PyObject *>lookups.check, <PyObject *>lookups.registry, specs, <void *>NULL
    )


def put_fronts(registry, metadata_class, functions):
    """Put native fronts for its lookups into a registry class.

    Args:
        registry: the class.
        metadata_class: the class of the entries of its dict of specs.
        functions: the Python functions of its classmethods, by name; of one module, and known
            to do what they do in vLLM: ``_ensure_registered``, and those that get a front:
            ``get_manager_class``, ``get_uniform_type_base_spec`` or both, and with both
            ``check_kv_cache_spec_registry``, which calls them.
    """
    cdef Lookups lookups = Lookups(registry, metadata_class, functions)
    fronts = {}
    if lookups.get_manager_class is not None:
        fronts["get_manager_class"] = kvreg_front_new(
            registry, lookups.get_manager_class, get_manager_class, lookups
        )
    if lookups.get_uniform_type_base_spec is not None:
        fronts["get_uniform_type_base_spec"] = kvreg_front_new(
            registry, lookups.get_uniform_type_base_spec, get_uniform_type_base_spec, lookups
        )
    if lookups.check is not None:
        fronts["check_kv_cache_spec_registry"] = kvreg_front_new(
            registry, lookups.check, check_kv_cache_spec_registry, lookups
        )
    lookups.attributes.update(fronts)
    for name, front in fronts.items():
        setattr(registry, name, front)

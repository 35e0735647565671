# cython: binding=False, embedsignature=True, embedsignature.format=clinic
# Without binding, functions are the builtin kind: the interpreter calls them in the fastest way
# it knows, and they do not bind to a class that has them as attributes.
"""The KV-cache spec registry: which manager owns this spec?

``TypeMap`` maps classes to values and answers along the MRO; ``KVCacheSpecRegistry`` keeps its
specs in one. Cython modules may ``cimport kvreg.specs``; C modules include ``kvreg/specs.h``.
"""

import importlib
import os
import threading
from threading import get_ident
from types import GenericAlias

cimport cython
from cpython.dict cimport PyDict_GetItemWithError, PyDict_SetDefault
from cpython.long cimport PyLong_FromVoidPtr
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyCFunction, PyObject, PyTypeObject
from cpython.pycapsule cimport PyCapsule_New


cdef extern from "Python.h":
    # Declared anew, as the classes' and the tuples' references are borrowed here.
    ctypedef struct ClassObject "PyTypeObject":
        PyObject *tp_mro

    ctypedef struct PyMethodDef:
        PyCFunction ml_meth

    ctypedef struct PyFrameObject:
        pass

    ctypedef struct PyCFunctionObject:
        PyMethodDef *m_ml

    PyTypeObject *Py_TYPE(PyObject *obj) noexcept
    int PyType_IsSubtype(PyTypeObject *cls, PyTypeObject *base) noexcept
    Py_ssize_t PyTuple_GET_SIZE(PyObject *items) noexcept
    PyObject *PyTuple_GET_ITEM(PyObject *items, Py_ssize_t i) noexcept
    Py_ssize_t PyDict_GET_SIZE(PyObject *mapping) noexcept
    PyFrameObject *PyEval_GetFrame() noexcept
    int Py_ReprEnter(PyObject *obj) except -1
    void Py_ReprLeave(PyObject *obj) noexcept
    object PyCFunction_NewEx(PyMethodDef *method, PyObject *self, object module)
    object PyObject_Vectorcall(
        object function, PyObject *const *args, size_t nargs, PyObject *kwnames
    )


cdef extern from "python/type_tag.h":
    int kvreg_type_tag_init() except -1
    void kvreg_type_tag_assign(PyTypeObject *cls) noexcept
    void kvreg_type_tag_replace_assigner(void (*assigner)(PyTypeObject *) noexcept) noexcept


cdef extern from "python/type_cache.h":
    ctypedef struct kvreg_type_cache_entry:
        PyObject *value

    size_t KVREG_TYPE_CACHE_BYTES "sizeof(kvreg_type_cache)"
    const kvreg_type_cache_entry *kvreg_type_cache_find(
        kvreg_type_cache *cache, PyTypeObject *cls
    ) noexcept
    void kvreg_type_cache_store(
        kvreg_type_cache *cache, PyTypeObject *cls, PyObject *value
    ) noexcept
    void kvreg_type_cache_forget(kvreg_type_cache *cache) noexcept


cdef extern from "kvreg/specs.h":
    const unsigned int KVREG_SPECS_API_VERSION

    ctypedef struct kvreg_specs_api:
        unsigned int version
        PyObject *(*lookup)(PyObject *spec) except? NULL


__all__ = [
    "KVCacheSpecMetadata",
    "KVCacheSpecRegistry",
    "RegistrationError",
    "TypeMap",
    "register_kv_cache_spec",
]

kvreg_type_tag_init()


# --- TypeMap ----------------------------------------------------------------------------------


# The map's dict may be emptied by the garbage collector, but it never goes away before the map.
@cython.no_gc_clear
cdef class TypeMap:
    """A mapping of classes to values that answers along the MRO, by identity of the class.

    ``types[cls] = value``, ``types[cls]``, ``del types[cls]`` and ``cls in types`` are about
    exactly this class; ``lookup`` and ``lookup_type`` find the nearest class of an MRO. A
    repeated lookup costs what a call of a builtin function costs. The map holds its classes and
    values until they are deleted; classes that were merely looked up are not kept alive.

    Iteration yields the classes in the order in which they came, as they were when it began.
    What is not a class is a ``TypeError``; a class that is not in the map, a ``KeyError``.
    """

    def __cinit__(self):
        self._entries = {}
        self._cache = <kvreg_type_cache *>PyMem_Calloc(1, KVREG_TYPE_CACHE_BYTES)
        if self._cache == NULL:
            raise MemoryError
        kvreg_type_cache_forget(self._cache)

    def __init__(self):
        pass

    def __dealloc__(self):
        PyMem_Free(self._cache)

    @classmethod
    def __class_getitem__(cls, value_type, /):
        """Return ``TypeMap[value_type]``, for annotations."""
        return GenericAlias(cls, value_type)

    def __len__(self):
        return len(self._entries)

    def __iter__(self):
        return iter([entry[0] for entry in self._entries.values()])

    def __contains__(self, cls):
        return PyLong_FromVoidPtr(<PyObject *>cls) in self._entries

    def __getitem__(self, cls):
        entry = self._entries.get(key_of(cls))
        if entry is None:
            raise KeyError(cls)
        return entry[1]

    def __setitem__(self, cls, value):
        key, entry = key_of(cls), (cls, value)
        kvreg_type_cache_forget(self._cache)
        self._entries[key] = entry

    def __delitem__(self, cls):
        key = key_of(cls)
        kvreg_type_cache_forget(self._cache)
        if self._entries.pop(key, None) is None:
            raise KeyError(cls)

    def clear(self):
        """Remove every class."""
        kvreg_type_cache_forget(self._cache)
        self._entries.clear()

    def lookup(self, obj, default=None):
        """Return the value of the nearest class in ``type(obj).__mro__``, or ``default``.

        The real type counts, whatever ``obj.__class__`` says.
        """
        cdef PyObject *value = find(self, Py_TYPE(<PyObject *>obj))
        return <object>value if value != NULL else default

    def lookup_type(self, cls, default=None):
        """Return the value of the nearest class in ``cls.__mro__``, or ``default``."""
        check_class("cls", cls)
        cdef PyObject *value = find(self, <PyTypeObject *>cls)
        return <object>value if value != NULL else default


cdef inline int check_class(str name, object cls) except -1:
    if not isinstance(cls, type):
        raise TypeError(f"{name} must be a class, not {cls!r}")
    return 0


cdef object key_of(object cls):
    check_class("a key of a TypeMap", cls)
    return PyLong_FromVoidPtr(<PyObject *>cls)


cdef PyObject *find(TypeMap types, PyTypeObject *cls) except? NULL:
    cdef const kvreg_type_cache_entry *known = kvreg_type_cache_find(types._cache, cls)
    if known == NULL:
        return walk_and_remember(types, cls)
    if known.value != NULL and PyDict_GET_SIZE(<PyObject *>types._entries) == 0:
        # The garbage collector has emptied the dict of a map that is about to go, and while it
        # goes on, a finalizer looks something up. This is the one change that moves no epoch.
        return NULL
    return known.value


cdef PyObject *walk_and_remember(TypeMap types, PyTypeObject *cls) except? NULL:
    cdef object kept = <object>cls  # assigning a tag can run code that lets go of the class
    cdef PyObject *value
    kvreg_type_tag_assign(<PyTypeObject *>kept)
    value = walk(types._entries, cls)
    kvreg_type_cache_store(types._cache, cls, value)
    return value


cdef PyObject *walk(dict entries, PyTypeObject *cls) except? NULL:
    """Look each class of the MRO up. Runs no Python code."""
    cdef PyObject *mro = (<ClassObject *>cls).tp_mro
    cdef PyObject *entry
    cdef Py_ssize_t i
    if mro == NULL:  # the class is still being made, and its metaclass asks
        return NULL
    for i in range(PyTuple_GET_SIZE(mro)):
        entry = PyDict_GetItemWithError(entries, PyLong_FromVoidPtr(PyTuple_GET_ITEM(mro, i)))
        if entry != NULL:
            return PyTuple_GET_ITEM(entry, 1)
    return NULL


# Tests stand in for a CPython that has no more tags to give.
cdef object tag_assigner = None


cdef void assign_tag_by_test(PyTypeObject *cls) noexcept:
    tag_assigner(<object>cls)


def _replace_tag_assigner(assigner):
    """Let ``assigner(cls)`` be called in place of CPython's own; ``None`` restores that."""
    global tag_assigner
    tag_assigner = assigner
    if assigner is None:
        kvreg_type_tag_replace_assigner(NULL)
    else:
        kvreg_type_tag_replace_assigner(assign_tag_by_test)


# --- the registry -----------------------------------------------------------------------------


class RegistrationError(ValueError, AssertionError):
    """A registration that is incomplete, or that contradicts an earlier one.

    It is an ``AssertionError`` too because that is what engines raised here before.
    """


# Without Cython's __repr__, which fails in threads other than the one that imported the module.
@cython.dataclasses.dataclass(frozen=True, repr=False)
cdef class KVCacheSpecMetadata:
    """What is registered for a class of KV-cache specs.

    Source: vLLM's ``KVCacheSpecMetadata`` (``vllm/v1/kv_cache_spec_registry.py``).

    Attributes:
        kvcache_spec_cls: the class of specs.
        manager_class: the manager of such specs' caches.
        uniform_type_base_spec: specs with the same one are of a uniform type, and may share a
            KV-cache group.
    """

    # For Cython, `type` would exclude the classes of other metaclasses.
    kvcache_spec_cls: object
    manager_class: object
    uniform_type_base_spec: object

    @classmethod
    def __class_getitem__(cls, types, /):
        """Return ``KVCacheSpecMetadata[spec class, manager class]``, for annotations."""
        return GenericAlias(cls, types)

    def __repr__(self):
        if Py_ReprEnter(<PyObject *>self):
            return "..."
        try:
            return (
                f"{type(self).__qualname__}(kvcache_spec_cls={self.kvcache_spec_cls!r}, "
                f"manager_class={self.manager_class!r}, "
                f"uniform_type_base_spec={self.uniform_type_base_spec!r})"
            )
        finally:
            Py_ReprLeave(<PyObject *>self)


# Class of specs -> KVCacheSpecMetadata. Nothing is ever removed: C callers borrow from it.
cdef TypeMap specs = TypeMap()
cdef kvreg_type_cache *specs_cache = specs._cache
cdef dict role_managers = {}


def register(kvcache_spec_cls, manager_class=None, uniform_type_base_spec=None):
    """Register a class of specs; to repeat a registration is harmless.

    Args:
        kvcache_spec_cls: the class of specs.
        manager_class: the manager of such specs' caches; required.
        uniform_type_base_spec: a class in ``kvcache_spec_cls.__mro__``: specs with the same one
            are of a uniform type. By default ``kvcache_spec_cls`` itself.

    Raises:
        RegistrationError: no manager; ``uniform_type_base_spec`` is not a base of the class; or
            the class is registered already, with another manager or base.
        TypeError: an argument is not a class.
    """
    check_class("kvcache_spec_cls", kvcache_spec_cls)
    if manager_class is None:
        raise RegistrationError(f"registration of {kvcache_spec_cls!r} needs a manager_class")
    check_class("manager_class", manager_class)
    if uniform_type_base_spec is None:
        uniform_type_base_spec = kvcache_spec_cls
    check_class("uniform_type_base_spec", uniform_type_base_spec)
    if not PyType_IsSubtype(
        <PyTypeObject *>kvcache_spec_cls, <PyTypeObject *>uniform_type_base_spec
    ):
        raise RegistrationError(
            f"{kvcache_spec_cls!r} does not inherit from its uniform_type_base_spec "
            f"{uniform_type_base_spec!r}"
        )
    add(KVCacheSpecMetadata(kvcache_spec_cls, manager_class, uniform_type_base_spec))


cdef int add(KVCacheSpecMetadata new) except -1:
    """Add what is not there yet, in one step for other threads; refuse what contradicts."""
    cdef KVCacheSpecMetadata old
    key, entry = key_of(new.kvcache_spec_cls), (new.kvcache_spec_cls, new)
    kvreg_type_cache_forget(specs._cache)
    old = (<tuple>PyDict_SetDefault(specs._entries, key, entry))[1]
    if (
        old.manager_class is not new.manager_class
        or old.uniform_type_base_spec is not new.uniform_type_base_spec
    ):
        raise RegistrationError(
            f"conflicting registrations: {old!r} stands, {new!r} came later"
        )
    return 0


def register_role_manager(role, manager_class):
    """Let ``manager_class`` manage every group of this role, whatever its specs are.

    To repeat a registration is harmless.

    Raises:
        RegistrationError: the role has another manager already.
        TypeError: ``role`` is not a string, or ``manager_class`` is not a class.
    """
    if not isinstance(role, str):
        raise TypeError(f"role must be a string, not {role!r}")
    check_class("manager_class", manager_class)
    old = role_managers.setdefault(role, manager_class)
    if old is not manager_class:
        raise RegistrationError(
            f"conflicting managers for the role {role!r}: {old!r} stands, "
            f"{manager_class!r} came later"
        )


# The bootstrap, guarded by the GIL: where these decide, no Python code runs between what is
# read and what is written. A lock would stay held in a child that another thread forks.
cdef object bootstrap = None
cdef bint bootstrap_waits = False
cdef dict bootstrap_runs = {}  # the thread that runs it -> an Event set when it has ended
cdef bint bootstrap_was_lost = False  # with the thread that ran it, which fork() left behind


def _forget_other_threads():
    global bootstrap_was_lost
    for thread in list(bootstrap_runs):
        if thread != get_ident():
            del bootstrap_runs[thread]
            bootstrap_was_lost = True


os.register_at_fork(after_in_child=_forget_other_threads)


# What runs in the middle of an import has a frame of this module below it.
cdef dict import_machinery = vars(importlib._bootstrap)


cdef bint is_importing() except -1:
    """Whether the calling thread is in the middle of an import, which others may wait for."""
    cdef PyFrameObject *current = PyEval_GetFrame()
    frame = None if current == NULL else <object>current
    while frame is not None:
        if frame.f_globals is import_machinery:
            return True
        frame = frame.f_back
    return False


cdef object run_of_other_thread():
    """Return the Event of a run that the calling thread can wait for, or None."""
    if get_ident() in bootstrap_runs:
        return None
    for ended in bootstrap_runs.values():
        return ended
    return None


def install_bootstrap(register_builtins):
    """Let ``register_builtins()`` run once, before the next lookup.

    That holds whatever is registered by then. The callable may register, look up (it sees what
    is registered so far) and import. It must not wait for a thread that looks something up: all
    other lookups wait for it to end. Only a thread in the middle of an import does not wait,
    since the callable may import the same module: it calls it, too. If it raises, so does the
    lookup, and the next lookup calls it again. To install the same callable again does nothing,
    also after it ran.

    A child that another thread made by ``fork()`` while it ran has a half of what it does:
    there lookups raise RuntimeError until a bootstrap is installed again.

    Raises:
        RegistrationError: another bootstrap still waits for the first lookup.
        TypeError: ``register_builtins`` is not callable.
    """
    global bootstrap, bootstrap_waits, bootstrap_was_lost
    if not callable(register_builtins):
        raise TypeError(f"register_builtins must be callable, not {register_builtins!r}")
    cdef bint can_wait = not is_importing()
    while can_wait:
        ended = run_of_other_thread()
        if ended is None:
            break
        ended.wait()
    if register_builtins is bootstrap and not bootstrap_was_lost:
        return
    if bootstrap_waits and not bootstrap_was_lost:
        raise RegistrationError(
            f"conflicting bootstraps: {bootstrap!r} still waits for the first lookup, "
            f"{register_builtins!r} came later"
        )
    bootstrap_waits, bootstrap_was_lost = True, False
    bootstrap = register_builtins  # last: to let go of the old one may run code


cdef int run_bootstrap() except -1:
    """Run what waits to be run, unless this thread is just doing so."""
    cdef bint can_wait = not is_importing()
    thread, own = get_ident(), threading.Event()
    while bootstrap_waits and thread not in bootstrap_runs:
        if bootstrap_was_lost:
            raise RuntimeError(
                f"this process was made by fork() while another thread ran the bootstrap "
                f"{bootstrap!r}: install it again, or fork before or after the first lookup"
            )
        ended = run_of_other_thread() if can_wait else None
        if ended is None:
            bootstrap_runs[thread] = own
            call_bootstrap(thread, own)
        else:
            ended.wait()
    return 0


cdef int call_bootstrap(object thread, object ended) except -1:
    global bootstrap_waits
    called = bootstrap
    try:
        called()
        if called is bootstrap:
            bootstrap_waits = False
    finally:
        del bootstrap_runs[thread]
        ended.set()
    return 0


cdef inline PyObject *find_metadata(PyObject *spec) except? NULL:
    """The KVCacheSpecMetadata that answers for a spec: borrowed, or NULL."""
    cdef const kvreg_type_cache_entry *known = kvreg_type_cache_find(specs_cache, Py_TYPE(spec))
    if known != NULL and not bootstrap_waits:
        return known.value
    return bootstrap_and_find(spec)


cdef PyObject *bootstrap_and_find(PyObject *spec) except? NULL:
    if bootstrap_waits:
        run_bootstrap()
    return find(specs, Py_TYPE(spec))


cdef KVCacheSpecMetadata lookup(object spec):
    cdef PyObject *metadata = find_metadata(<PyObject *>spec)
    return <KVCacheSpecMetadata>metadata if metadata != NULL else None


def get_manager_class(kvcache_spec, role=None):
    """Return the manager class for a spec, or ``None`` if there is none.

    Args:
        kvcache_spec: a spec. What is registered for the nearest class in
            ``type(kvcache_spec).__mro__`` counts.
        role: the role of the spec's group. A manager registered for the role takes precedence.

    Raises:
        Exception: what the bootstrap raises, if this is the first lookup.
    """
    cdef PyObject *metadata = find_metadata(<PyObject *>kvcache_spec)
    if role is not None:
        manager_class = role_managers.get(role)
        if manager_class is not None:
            return manager_class
    if metadata == NULL:
        return None
    return (<KVCacheSpecMetadata>metadata).manager_class


def get_uniform_type_base_spec(kvcache_spec):
    """Return the base that a spec's type is uniform with, or ``None`` if there is none.

    Args:
        kvcache_spec: a spec. What is registered for the nearest class in
            ``type(kvcache_spec).__mro__`` counts.

    Raises:
        Exception: what the bootstrap raises, if this is the first lookup.
    """
    cdef PyObject *metadata = find_metadata(<PyObject *>kvcache_spec)
    if metadata == NULL:
        return None
    return (<KVCacheSpecMetadata>metadata).uniform_type_base_spec


def check_kv_cache_spec_registry(kv_cache_spec):
    """Check that every layer's spec has a registered type.

    Args:
        kv_cache_spec: a dict from layer name to spec.

    Raises:
        ValueError: the type of a layer's spec is not registered.
        Exception: what the bootstrap raises, if this is the first lookup.
    """
    cdef dict spec_of_layer = dict(kv_cache_spec)
    for layer_name, spec in spec_of_layer.items():
        if find_metadata(<PyObject *>spec) == NULL:
            raise ValueError(
                f"layer {layer_name!r} has a KV-cache spec of type {type(spec)!r}, which is "
                f"not registered: register it with the @register_kv_cache_spec decorator"
            )


# Of all functions this one is called on the scheduler's hot path, and almost always as f(spec).
# Cython's argument parsing takes a reference to each argument; this front for it takes none.
cdef object call_get_manager_class(
    PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames
):
    cdef PyObject *metadata
    if nargs != 1 or kwnames != NULL:
        return PyObject_Vectorcall(get_manager_class, args, nargs, kwnames)
    metadata = find_metadata(args[0])
    if metadata == NULL:
        return None
    return (<KVCacheSpecMetadata>metadata).manager_class


cdef PyMethodDef front = (<PyCFunctionObject *>get_manager_class).m_ml[0]
front.ml_meth = <PyCFunction><void *>call_get_manager_class


class KVCacheSpecRegistry:
    """The process's registry of KV-cache spec classes and their managers.

    Every attribute is a plain function, to be called on the class itself. All may be called
    from any thread.

    Source: vLLM's ``KVCacheSpecRegistry`` (``vllm/v1/kv_cache_spec_registry.py``).
    """

    register = register
    register_role_manager = register_role_manager
    install_bootstrap = install_bootstrap
    get_manager_class = PyCFunction_NewEx(&front, NULL, __name__)
    get_uniform_type_base_spec = get_uniform_type_base_spec
    check_kv_cache_spec_registry = check_kv_cache_spec_registry


def register_kv_cache_spec(manager_class=None, uniform_type_base_spec=None):
    """Return a decorator that registers a class of specs and returns it.

    The arguments and errors are those of ``KVCacheSpecRegistry.register``::

        @register_kv_cache_spec(manager_class=WindowManager, uniform_type_base_spec=FullSpec)
        class WindowSpec(FullSpec): ...
    """

    def decorator(kvcache_spec_cls):
        register(kvcache_spec_cls, manager_class, uniform_type_base_spec)
        return kvcache_spec_cls

    return decorator


# --- the C API --------------------------------------------------------------------------------


cdef kvreg_specs_api c_api
c_api.version = KVREG_SPECS_API_VERSION
c_api.lookup = find_metadata
_C_API = PyCapsule_New(&c_api, "kvreg.specs._C_API", NULL)

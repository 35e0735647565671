"""The registry for Cython: ``from kvreg.specs cimport lookup`` costs a C call a lookup."""

from cpython.object cimport PyObject, PyTypeObject


cdef extern from *:
    """
    typedef struct kvreg_type_cache kvreg_type_cache;
    """
    ctypedef struct kvreg_type_cache


cdef class TypeMap:
    # id(cls) -> (cls, value): a metaclass may redefine __eq__ and __hash__, an int does not.
    cdef dict _entries
    # Answers of earlier lookups. Before _entries changes they have to be forgotten.
    cdef kvreg_type_cache *_cache


cdef class KVCacheSpecMetadata:
    cdef readonly object kvcache_spec_cls
    cdef readonly object manager_class
    cdef readonly object uniform_type_base_spec


# The value of the nearest class in cls.__mro__ that `types` has: borrowed, valid until `types`
# changes. NULL without an exception: there is none. NULL with an exception: out of memory.
cdef PyObject *find(TypeMap types, PyTypeObject *cls) except? NULL

# The registry's metadata of the nearest registered class in type(spec).__mro__, or None. Raises
# what the bootstrap raises if this is the first lookup.
cdef KVCacheSpecMetadata lookup(object spec)

# cython: language_level=3
"""A Cython module that cimports kvreg.specs as its users would."""

from cpython.object cimport PyObject, PyTypeObject

cimport kvreg.specs
from kvreg.specs cimport KVCacheSpecMetadata, TypeMap, find


def manager_class(spec):
    cdef KVCacheSpecMetadata metadata = kvreg.specs.lookup(spec)
    return None if metadata is None else metadata.manager_class


def find_type(TypeMap types not None, type cls not None):
    cdef PyObject *value = find(types, <PyTypeObject *>cls)
    return "nothing" if value == NULL else <object>value

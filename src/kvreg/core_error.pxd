cdef extern from "kvreg/error.h" nogil:
    ctypedef enum kvreg_status:
        KVREG_OK
        KVREG_E_ARGUMENT
        KVREG_E_MEMORY
        KVREG_E_SYSTEM

    ctypedef struct kvreg_error:
        kvreg_status status
        char text[256]


cdef int raise_core_error(const kvreg_error *error) except -1

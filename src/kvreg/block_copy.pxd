from libc.stdint cimport uint32_t

from kvreg.core_error cimport kvreg_error, kvreg_status


cdef extern from "kvreg/copy.h" nogil:
    ctypedef struct kvreg_rows:
        void *base
        size_t stride
        size_t rows

    ctypedef struct kvreg_copy_kernel:
        pass

    kvreg_status kvreg_copy_choose(
        size_t block_bytes, size_t working_set_bytes, const kvreg_copy_kernel **kernel,
        kvreg_error *error,
    ) noexcept


cdef extern from "transfer.h" nogil:
    enum:
        KVREG_WORKERS_MAX


cdef extern from "copy_threads.h" nogil:
    kvreg_status kvreg_copy_on_threads(
        uint32_t threads, const kvreg_copy_kernel *kernel,
        const kvreg_rows *dst, const uint32_t *dst_ids,
        const kvreg_rows *src, const uint32_t *src_ids,
        size_t block_bytes, size_t n, kvreg_error *error,
    ) noexcept


cdef class Side:
    cdef Py_buffer view
    cdef bint exported
    cdef kvreg_rows rows
    cdef Py_ssize_t row_bytes

    cdef Py_ssize_t row_stride(self, str name) except -1


cdef class RowIds:
    cdef uint32_t *rows
    cdef Py_ssize_t n

from libc.stdint cimport uint32_t


cdef int fill_row_ids(
    object ids, str name, uint32_t *out, Py_ssize_t n, size_t rows
) except -1

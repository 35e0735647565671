# cython: boundscheck=False, wraparound=False
# Every index below runs over a length that was read first.
"""Row numbers as engines pass them, turned into what the C core takes."""

from cpython.buffer cimport (
    Py_buffer,
    PyBUF_FORMAT,
    PyBUF_STRIDES,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.number cimport PyIndex_Check, PyNumber_Index
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcpy, strchr


cdef int fill_row_ids(
    object ids, str name, uint32_t *out, Py_ssize_t n, size_t rows
) except -1:
    """Write the `n` row numbers in `ids` to `out`.

    `ids` is a one-dimensional buffer of int32 or int64, or a sequence of ints; each names one
    of `rows` rows. `name` is what the caller's user calls it, for the errors.
    """
    if PyObject_CheckBuffer(ids):
        return fill_from_buffer(ids, name, out, n, rows)
    return fill_from_sequence(ids, name, out, n, rows)


cdef int check_length(str name, Py_ssize_t length, Py_ssize_t n) except -1:
    if length != n:
        raise ValueError(f"{name} has {length} row numbers for {n} blocks")
    return 0


cdef int refuse(str name, Py_ssize_t i, object value, size_t rows) except -1:
    raise ValueError(
        f"{name}[{i}] is {value}; the buffer's rows are 0 to {<object>rows - 1}"
    )


cdef bint is_int(const char *format) noexcept:
    """Whether a buffer's format is one native signed integer, whatever its size."""
    if format[0] == b"@" or format[0] == b"=" or format[0] == b"<":
        format += 1
    return format[0] != 0 and strchr(b"ilq", format[0]) != NULL and format[1] == 0


cdef int fill_from_buffer(
    object ids, str name, uint32_t *out, Py_ssize_t n, size_t rows
) except -1:
    cdef Py_buffer view
    cdef Py_ssize_t i
    cdef int32_t short_row
    cdef int64_t row
    cdef const char *item
    # Through a memoryview: some exporters leave strides and format out, as ctypes does.
    PyObject_GetBuffer(memoryview(ids), &view, PyBUF_STRIDES | PyBUF_FORMAT)
    try:
        if view.ndim != 1 or not is_int(view.format) or view.itemsize not in (4, 8):
            raise TypeError(
                f"{name} must hold int32 or int64 in one dimension; it has {view.ndim} "
                f"dimensions of format {view.format.decode()!r}"
            )
        check_length(name, view.shape[0], n)
        item = <const char *>view.buf
        for i in range(n):
            # A buffer's items need not be aligned.
            if view.itemsize == 4:
                memcpy(&short_row, item, 4)
                row = short_row
            else:
                memcpy(&row, item, 8)
            if row < 0 or <size_t>row >= rows:
                refuse(name, i, row, rows)
            out[i] = <uint32_t>row
            item += view.strides[0]
    finally:
        PyBuffer_Release(&view)
    return 0


cdef int fill_from_sequence(
    object ids, str name, uint32_t *out, Py_ssize_t n, size_t rows
) except -1:
    cdef Py_ssize_t i
    cdef int64_t row
    try:
        # A tuple: what an item's __index__ does cannot change it.
        values = tuple(ids)
    except TypeError:
        raise TypeError(
            f"{name} must be a sequence of ints or a buffer of int32 or int64; "
            f"it is a {type(ids).__name__}"
        ) from None
    check_length(name, len(values), n)
    for i in range(n):
        value = values[i]
        if not PyIndex_Check(value):
            raise TypeError(f"{name}[{i}] must be an int; it is {value!r}")
        value = PyNumber_Index(value)
        try:
            row = value
        except OverflowError:
            row = -1
        if row < 0 or <size_t>row >= rows:
            refuse(name, i, value, rows)
        out[i] = <uint32_t>row
    return 0

"""Copies of fixed-size blocks between two buffers."""

from operator import index

from cpython.buffer cimport (
    PyBUF_RECORDS_RO,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.mem cimport PyMem_Free, PyMem_Malloc

from kvreg.buffer_format cimport may_hold_references
from kvreg.core_error cimport KVREG_OK, raise_core_error
from kvreg.row_ids cimport fill_row_ids

__all__ = ["copy_blocks"]


cdef class Side:
    """One side of a copy: an exported buffer, seen as rows."""

    def __cinit__(self, str name, object buffer):
        if not PyObject_CheckBuffer(buffer):
            raise TypeError(f"{name} must be a buffer, not {type(buffer).__name__}")
        try:
            # Through a memoryview: some exporters leave strides and format out, as ctypes does.
            PyObject_GetBuffer(memoryview(buffer), &self.view, PyBUF_RECORDS_RO)
        except (BufferError, ValueError) as error:
            raise ValueError(f"{name} does not give access to its bytes: {error}") from error
        self.exported = True
        if self.view.ndim != 2:
            raise ValueError(
                f"{name} must have 2 dimensions (rows, elements of a row), not {self.view.ndim}"
            )
        if may_hold_references(self.view.format):
            raise TypeError(
                f"{name} may hold references to Python objects, which are no bytes to copy; "
                f"its format is {self.view.format.decode('utf-8', 'replace')!r}"
            )
        self.row_bytes = self.view.shape[1] * self.view.itemsize
        self.rows.base = self.view.buf
        self.rows.rows = self.view.shape[0]
        self.rows.stride = self.row_stride(name)

    cdef Py_ssize_t row_stride(self, str name) except -1:
        """Check the strides; a stride that is never used may be anything."""
        cdef Py_ssize_t between_elements = self.view.strides[1]
        cdef Py_ssize_t between_rows = self.view.strides[0]
        if self.row_bytes == 0:
            raise ValueError(f"{name} has rows of 0 bytes; a row has 1 byte or more")
        if self.view.shape[1] > 1 and between_elements != self.view.itemsize:
            raise ValueError(
                f"{name} must have contiguous rows: its elements of {self.view.itemsize} bytes "
                f"are {between_elements} bytes apart"
            )
        if self.view.shape[0] <= 1:
            return self.row_bytes
        if between_rows < self.row_bytes:
            raise ValueError(
                f"{name} has rows of {self.row_bytes} bytes that are only {between_rows} bytes "
                "apart"
            )
        return between_rows

    def __dealloc__(self):
        if self.exported:
            PyBuffer_Release(&self.view)


cdef class RowIds:
    """Row numbers, converted and checked."""

    def __cinit__(self, str name, object ids, Side side):
        # A buffer need not have a length of its own.
        cdef object rows = memoryview(ids) if PyObject_CheckBuffer(ids) else ids
        try:
            self.n = len(rows)
        except TypeError:
            raise TypeError(
                f"{name} must be a sequence of ints or a buffer of int32 or int64, "
                f"not {type(ids).__name__}"
            ) from None
        self.rows = <uint32_t *> PyMem_Malloc(self.n * sizeof(uint32_t))
        if self.rows == NULL:
            raise MemoryError(f"no memory for {self.n} row numbers")
        # Row numbers have 32 bits, whatever the buffer.
        fill_row_ids(rows, name, self.rows, self.n, min(side.rows.rows, <size_t> 1 << 32))

    def __dealloc__(self):
        PyMem_Free(self.rows)


cdef uint32_t thread_count(object threads) except 0:
    try:
        count = index(threads)
    except TypeError:
        raise TypeError(f"threads must be an int, not {type(threads).__name__}") from None
    if not 1 <= count <= KVREG_WORKERS_MAX:
        raise ValueError(f"threads must be 1 to {<int>KVREG_WORKERS_MAX}, not {count}")
    return count


def copy_blocks(dst, dst_ids, src, src_ids, *, threads=1):
    """Copy row ``src_ids[i]`` of ``src`` to row ``dst_ids[i]`` of ``dst``, for every ``i``.

    The bytes are copied without the GIL, as fast as the memory allows: past what a core's cache
    holds, stores bypass the caches. The environment variable ``KVREG_COPY`` forces one way of
    copying by its name.

    Args:
        dst: Writable buffer of shape (rows, elements of a row). Rows are contiguous, and may
            lie further apart than they are long.
        dst_ids: Row numbers of ``dst``: a sequence of ints, or a 1-dimensional buffer of int32
            or int64. Where a row occurs more than once, the last copy stays.
        src: Buffer whose rows have as many bytes as those of ``dst``. The element types may
            differ; bytes are copied.
        src_ids: Row numbers of ``src``, as many as there are in ``dst_ids``.
        threads: How many threads may copy, 1 to 1024. More than one are started for the call,
            at most one for each 4 MiB; a smaller copy is made by the caller's thread.

    Raises:
        TypeError: An argument is of a type that is not described above.
        ValueError: A shape, stride, row number or ``threads`` is not allowed, ``dst`` is
            read-only, a row to write overlaps a row to read, or ``KVREG_COPY`` names no way of
            copying that this machine has.
        OSError: The system would not start a thread.

    Nothing is copied when an exception is raised.
    """
    cdef uint32_t workers = thread_count(threads)
    cdef Side to = Side("dst", dst), source = Side("src", src)
    if to.view.readonly:
        raise ValueError("dst is read-only")
    if to.row_bytes != source.row_bytes:
        raise ValueError(
            f"dst has rows of {to.row_bytes} bytes, src of {source.row_bytes}; "
            "they must be equal"
        )
    cdef RowIds to_ids = RowIds("dst_ids", dst_ids, to)
    cdef RowIds source_ids = RowIds("src_ids", src_ids, source)
    if to_ids.n != source_ids.n:
        raise ValueError(
            f"dst_ids has {to_ids.n} row numbers, src_ids {source_ids.n}; "
            "they must be as many"
        )

    cdef kvreg_error error
    cdef const kvreg_copy_kernel *kernel
    # It reads the environment: with the GIL, so that no Python thread is changing it.
    cdef kvreg_status status = kvreg_copy_choose(
        to.row_bytes, to.rows.rows * to.row_bytes, &kernel, &error
    )
    if status == KVREG_OK:
        with nogil:
            status = kvreg_copy_on_threads(
                workers, kernel, &to.rows, to_ids.rows, &source.rows, source_ids.rows,
                to.row_bytes, to_ids.n, &error,
            )
    if status != KVREG_OK:
        raise_core_error(&error)

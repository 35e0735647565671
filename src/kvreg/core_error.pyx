"""What a failed call of the C core means in Python."""


cdef int raise_core_error(const kvreg_error *error) except -1:
    """Raise the error; it never returns."""
    cdef str text = error.text.decode("utf-8", "replace")
    if error.status == KVREG_E_ARGUMENT:
        raise ValueError(text)
    if error.status == KVREG_E_MEMORY:
        raise MemoryError(text)
    raise OSError(text)

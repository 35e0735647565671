"""What the struct format of a buffer (PEP 3118) says of its elements."""

from libc.string cimport strchr


cdef bint may_hold_references(const char *format) except -1:
    """Whether an element holds references to Python objects, or cannot be shown not to.

    They have the code O, which may also stand in a field's :name:. The name of a ctypes field
    may have colons of its own, which make names of codes; but it has a byte order before each
    code, so that an identifier was a name.
    """
    if format == NULL or strchr(format, b"O") == NULL:
        return False
    cdef list parts = (<bytes> format).decode("utf-8", "replace").split(":")
    for codes in parts[::2]:
        if "O" in codes:
            return True
    for name in parts[1::2]:
        if "O" in name and not name.isidentifier():
            return True
    return len(parts) % 2 == 0

"""What the struct format of a buffer says of its elements."""


cdef bint holds_references(const char *format) except -1:
    """Whether an element holds references to Python objects.

    They have the code O, which may also stand in a field's :name:.
    """
    if format == NULL:
        return False
    return b"O" in b"".join((<bytes> format).split(b":")[::2])

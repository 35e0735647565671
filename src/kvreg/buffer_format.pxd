cdef bint holds_references(const char *format) except -1

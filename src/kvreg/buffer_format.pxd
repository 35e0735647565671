cdef bint may_hold_references(const char *format) except -1

"""The plain-Python reference of TypeMap, and a driver that holds the two against each other."""

import pytest

from kvreg import TypeMap, specs

ABSENT = object()


class ReferenceMap:
    """What a TypeMap is, in plain Python: an MRO walk over a dict keyed by id(cls)."""

    def __init__(self):
        self.entries = {}

    def __setitem__(self, cls, value):
        self.entries[id(cls)] = (cls, value)

    def __delitem__(self, cls):
        del self.entries[id(cls)]

    def __contains__(self, cls):
        return id(cls) in self.entries

    def __iter__(self):
        return (cls for cls, _ in self.entries.values())

    def clear(self):
        self.entries.clear()

    def lookup_type(self, cls, default):
        # As attribute lookups give a class its version tag, the MRO is read by the getter.
        for base in type.__dict__["__mro__"].__get__(cls):
            if id(base) in self.entries:
                return self.entries[id(base)][1]
        return default


class SideBySide:
    """A TypeMap and its reference, always given the same; ``check`` compares the answers."""

    def __init__(self):
        self.types = TypeMap()
        self.reference = ReferenceMap()

    def __setitem__(self, cls, value):
        self.types[cls] = value
        self.reference[cls] = value

    def __delitem__(self, cls):
        del self.types[cls]
        del self.reference[cls]

    def clear(self):
        self.types.clear()
        self.reference.clear()

    def check(self, *classes):
        """Compare all the answers for each class; return the value for the last, or ABSENT."""
        expected = ABSENT
        for cls in classes:
            expected = self.reference.lookup_type(cls, ABSENT)
            for _ in range(2):  # the second is answered from the cache
                assert self.types.lookup_type(cls, ABSENT) is expected
            assert self.types.lookup(object.__new__(cls), ABSENT) is expected
            assert (cls in self.types) == (cls in self.reference)
        return expected

    def check_contents(self):
        """Compare what the two hold."""
        expected = list(self.reference)
        found = list(self.types)
        assert len(self.types) == len(found) == len(expected)
        assert all(a is b for a, b in zip(found, expected, strict=True))


@pytest.fixture
def maps():
    """Return an empty TypeMap beside an empty reference."""
    return SideBySide()


@pytest.fixture
def new_maps():
    """Return the class of ``maps``, for tests that need many."""
    return SideBySide


@pytest.fixture
def absent():
    """Return what ``maps.check`` returns where nothing is found."""
    return ABSENT


@pytest.fixture
def tag_requests():
    """Let CPython refuse tags to all classes; return the list of the classes that asked."""
    requests = []
    specs._replace_tag_assigner(requests.append)
    yield requests
    specs._replace_tag_assigner(None)

"""A buffer whose exports are made and released by Python code (PEP 688)."""


class BufferInPython:
    """Exports `array`, and runs an action at each export and each release.

    A buffer from CPython 3.12 on; any object before.
    """

    def __init__(self, array, at_export=lambda: None, at_release=lambda: None):
        self.array, self.at_export, self.at_release = array, at_export, at_release
        self.exports = 0

    def __buffer__(self, flags):
        self.at_export()
        self.exports += 1
        return memoryview(self.array)

    def __release_buffer__(self, view):
        self.exports -= 1
        view.release()
        self.at_release()

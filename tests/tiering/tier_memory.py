"""The bytes of a tier's blocks where they lie in memory, for tests that spoil them."""

import mmap
import os


class TierMemory:
    """Finds a tier's slots by a block that nothing else in memory is like.

    The block was the first that was stored in the tier: it is in the first slot, which begins a
    page. Each block to flip must be told from the others by its bytes as well.
    """

    def __init__(self, tier, first_block):
        self.file = os.open("/proc/self/mem", os.O_RDWR)
        self.bytes = tier.stats().data_bytes
        self.address = next(
            page for page in anonymous_pages() if self._read(page, first_block) == first_block
        )

    def flip_last_bit(self, block):
        content = os.pread(self.file, self.bytes, self.address)
        (start,) = (
            start
            for start in range(0, len(content), len(block))
            if content[start : start + len(block)] == block
        )
        last = start + len(block) - 1
        os.pwrite(self.file, bytes([content[last] ^ 1]), self.address + last)

    def close(self):
        os.close(self.file)

    def _read(self, page, block):
        return os.pread(self.file, len(block), page)


def anonymous_pages():
    """Yield the addresses of private writable pages of no file, of small mappings first."""
    ranges = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            addresses, permissions, _, _, inode, *_ = line.split()
            start, end = (int(address, 16) for address in addresses.split("-"))
            if permissions == "rw-p" and inode == "0":
                ranges.append((end - start, start, end))
    for _, start, end in sorted(ranges):
        yield from range(start, end, mmap.PAGESIZE)

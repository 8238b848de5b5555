"""Tests of the worker's GPU clock that need no GPU. Its folder is the first argument."""

import ctypes
import struct
import sys

sys.path.insert(0, sys.argv[1])
import gpu_clock


def record(kind, start_ns=1000, end_ns=1500):
    memory = ctypes.create_string_buffer(144)
    struct.pack_into("<I", memory, 0, kind)
    struct.pack_into("<QQ", memory, 16, start_ns, end_ns)
    return memory


def read(memory):
    return gpu_clock.read(ctypes.addressof(memory))


name = ctypes.create_string_buffer(b"prep_entry")
kernel = record(gpu_clock.KERNEL)
struct.pack_into("<Q", kernel, 104, ctypes.addressof(name))
assert read(kernel) == ("prep_entry", 0, 1000, 1500)
copy = record(gpu_clock.COPY)
struct.pack_into("<B", copy, 4, 8)
struct.pack_into("<Q", copy, 8, 64)
assert read(copy) == ("copy of 64 bytes DtoD", 64, 1000, 1500)
assert read(record(17)) is None

FLUSH, SNAPSHOT = "fill of 8 bytes", "copy of 4 bytes DtoD"
flush, snapshot = (FLUSH, 8, 10, 20), (SNAPSHOT, 4, 90_000, 90_010)


def of_call(*records):
    return gpu_clock.of_call(records, FLUSH, 1, SNAPSHOT)


assert of_call(flush, ("b", 0, 50, 80_000), ("a", 0, 21, 40), snapshot) == (79_979, ["b", "a"], False)
assert of_call(flush, snapshot) == (0, [], False)
assert of_call(flush, ("late", 0, 30, 99_000), snapshot)[2], "it ends after the stream of the call"
for records in ([flush], [snapshot], [flush, flush, snapshot], [flush, ("lost", 0, 0, 0), snapshot]):
    try:
        of_call(*records)
    except gpu_clock.GpuError:
        continue
    raise AssertionError(records)
try:
    gpu_clock.called(ctypes.CDLL(None), "abs", ctypes.c_int)(-3)
except gpu_clock.GpuError as error:
    assert str(error) == "abs answered 3"
print("right")

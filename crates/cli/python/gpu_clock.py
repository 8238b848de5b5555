"""Times a call on an NVIDIA GPU for the worker of `kernelproof eval`: CUPTI's activity records, or CUDA events without CUPTI.

Everything goes through functions of the driver and of CUPTI that are looked up when this module is loaded, before any
solution is. Layout of records: CUDA Toolkit, cupti_activity.h (CUpti_ActivityKernel4 to 13, CUpti_ActivityMemcpy to 7,
CUpti_ActivityMemset to 5): time stamps at bytes 16 and 24 of all, bytes at 8 of copies and fills, a kernel's name at 104.
"""

import ctypes
import os
import struct

CUPTI_NAMES = (
    "libcupti.so.13", "libcupti.so.12", "libcupti.so",
    "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so", "/usr/local/cuda/lib64/libcupti.so",
)
COPY, FILL, KERNEL, PEER_COPY = 1, 2, 10, 22
FLUSH_FORCED = 1
PERSISTING_L2_SIZE = 6
DIRECTIONS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
BUFFER_BYTES = 1 << 20
# As crates/gauge/src/stopwatch.rs, where the reason is.
FILLS = 120
# Engines stamp their records with the same clock, but not at the same instant.
STAMPS_DIFFER_NS = 2000

Requested = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t))
Completed = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class GpuError(Exception):
    """The driver or CUPTI refused."""


def called(library, name, *types):
    function = getattr(library, name)
    function.argtypes, function.restype = types, ctypes.c_int

    def call(*arguments):
        code = function(*arguments)
        if code != 0:
            raise GpuError(f"{name} answered {code}")
    return call


class Driver:
    """Functions of the driver, on the current context."""

    def __init__(self):
        library = ctypes.CDLL("libcuda.so.1")
        pointer, size, stream = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p
        self.fill = called(library, "cuMemsetD8Async", pointer, ctypes.c_ubyte, size, stream)
        self.fill_words = called(library, "cuMemsetD32Async", pointer, ctypes.c_uint, size, stream)
        self.copy = called(library, "cuMemcpyDtoDAsync_v2", pointer, pointer, size, stream)
        self.upload = called(library, "cuMemcpyHtoDAsync_v2", pointer, ctypes.c_void_p, size, stream)
        self.download = called(library, "cuMemcpyDtoHAsync_v2", ctypes.c_void_p, pointer, size, stream)
        self.synchronize = called(library, "cuCtxSynchronize")
        self.reset_cache = called(library, "cuCtxResetPersistingL2Cache")
        self.register = called(library, "cuMemHostRegister_v2", ctypes.c_void_p, size, ctypes.c_uint)
        self.unregister = called(library, "cuMemHostUnregister", ctypes.c_void_p)
        self.event = called(library, "cuEventCreate", ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint)
        self.record = called(library, "cuEventRecord", ctypes.c_void_p, stream)
        elapsed = "cuEventElapsedTime_v2" if hasattr(library, "cuEventElapsedTime_v2") else "cuEventElapsedTime"
        self.elapsed = called(library, elapsed, ctypes.POINTER(ctypes.c_float), ctypes.c_void_p, ctypes.c_void_p)
        self.limit = called(library, "cuCtxGetLimit", ctypes.POINTER(size), ctypes.c_int)

    def persisting_bytes(self):
        value = ctypes.c_size_t()
        self.limit(ctypes.byref(value), PERSISTING_L2_SIZE)
        return value.value


class Recorder:
    """All kernels, copies and fills of this process, by CUPTI."""

    def __init__(self):
        library = self.load()
        self.flush = called(library, "cuptiActivityFlushAll", ctypes.c_uint32)
        self.next = library.cuptiActivityGetNextRecord
        self.next.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p))
        self.buffers, self.records = {}, []
        # CUPTI keeps pointers to these.
        self.callbacks = Requested(self.requested), Completed(self.completed)
        called(library, "cuptiActivityRegisterCallbacks", Requested, Completed)(*self.callbacks)
        enable = called(library, "cuptiActivityEnable", ctypes.c_int)
        for kind in (COPY, FILL, KERNEL, PEER_COPY):
            enable(kind)

    @staticmethod
    def load():
        named = os.environ.get("KERNELPROOF_CUPTI")
        for name in (named,) if named else CUPTI_NAMES:
            try:
                return ctypes.CDLL(name)
            except OSError:
                pass
        raise GpuError("no CUPTI")

    def requested(self, buffer, size, most_records):
        memory = ctypes.create_string_buffer(BUFFER_BYTES)
        address = ctypes.addressof(memory)
        self.buffers[address] = memory
        buffer[0], size[0], most_records[0] = address, BUFFER_BYTES, 0

    def completed(self, _context, _stream, buffer, _size, valid_bytes):
        record = ctypes.c_void_p()
        while self.next(buffer, valid_bytes, ctypes.byref(record)) == 0:
            self.records.append(read(record.value))
        self.buffers.pop(buffer, None)

    def take(self):
        """Records since it was last asked: (what, bytes, start in ns, end in ns)."""
        self.flush(FLUSH_FORCED)
        records, self.records = self.records, []
        return [record for record in records if record]


def read(address):
    kind, = struct.unpack("<I", ctypes.string_at(address, 4))
    if kind not in (COPY, FILL, KERNEL, PEER_COPY):
        return None
    amount, start_ns, end_ns = struct.unpack("<QQQ", ctypes.string_at(address + 8, 24))
    if kind == KERNEL:
        name = ctypes.c_char_p.from_address(address + 104).value
        return (name or b"a kernel without a name").decode(errors="replace"), 0, start_ns, end_ns
    if kind == FILL:
        return f"fill of {amount} bytes", amount, start_ns, end_ns
    direction = DIRECTIONS.get(ctypes.string_at(address + 4, 1)[0], "otherwise")
    return f"copy of {amount} bytes {direction}", amount, start_ns, end_ns


def of_call(records, flush, fills, snapshot):
    """Time in ns, activities, and whether something ran on when the stream of the call had ended.

    `flush` and `snapshot` are what the records of the fills before the call and of the copy after it say.
    """
    for mark, expected in ((flush, fills), (snapshot, 1)):
        found = sum(what == mark for what, *_ in records)
        if found != expected:
            raise GpuError(f"found {found} activities {mark!r}, expected {expected} of the judge")
    end_of_stream, = [start for what, _, start, _ in records if what == snapshot]
    call = [record for record in records if record[0] not in (flush, snapshot)]
    if not call:
        return 0, [], False
    start_ns, end_ns = min(start for *_, start, _ in call), max(end for *_, end in call)
    if start_ns == 0:
        raise GpuError("an activity has no time")
    return end_ns - start_ns, [what for what, *_ in call], end_ns > end_of_stream + STAMPS_DIFFER_NS


class Clock:
    """Times calls on the current context."""

    def __init__(self, cold_bytes):
        self.driver, self.cold_bytes = Driver(), cold_bytes
        try:
            self.recorder, self.name = Recorder(), "cupti"
        except (GpuError, AttributeError):
            self.recorder, self.name = None, "events"
            self.events = ctypes.c_void_p(), ctypes.c_void_p()
            for event in self.events:
                self.driver.event(ctypes.byref(event), 0)
        self.persisting_bytes = self.driver.persisting_bytes()

    def time(self, stream, cold, block, snapshot, block_bytes, call):
        """Empties the cache, calls, and copies the block to the snapshot in the order of the stream."""
        driver = self.driver
        driver.synchronize()
        if self.recorder:
            self.recorder.take()
        for _ in range(FILLS):
            driver.fill(cold, 0, self.cold_bytes, stream)
        if not self.recorder:
            driver.record(self.events[0], stream)
        call()
        if not self.recorder:
            driver.record(self.events[1], stream)
        driver.copy(snapshot, block, block_bytes, stream)
        driver.synchronize()
        if self.recorder:
            marks = f"fill of {self.cold_bytes} bytes", FILLS, f"copy of {block_bytes} bytes DtoD"
            return of_call(self.recorder.take(), *marks)
        time_ms = ctypes.c_float()
        driver.elapsed(ctypes.byref(time_ms), *self.events)
        return round(time_ms.value * 1e6), None, False

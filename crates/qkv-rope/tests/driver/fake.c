/*
 * A driver that computes nothing: it shows one Hopper GPU, hands out addresses and writes each call that matters into the
 * file that FAKE_DRIVER_LOG names. Stream 7 is being captured.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK 0
#define HANDLE(value) ((void *)(uintptr_t)(value))

static FILE *log_file;
static __thread void *current;
static __thread int capture_mode;
static uint64_t next_address = 0x10000000;

#define LOG(...)                             \
    do {                                     \
        fprintf(log_file, __VA_ARGS__);      \
        fflush(log_file);                    \
    } while (0)

int cuInit(unsigned flags) {
    (void)flags;
    if (log_file == NULL) log_file = fopen(getenv("FAKE_DRIVER_LOG"), "a");
    return log_file == NULL;
}
int cuDriverGetVersion(int *version) { return *version = 13000, OK; }
int cuDeviceGetCount(int *count) { return *count = 1, OK; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, OK; }
int cuDeviceGetName(char *name, int length, int device) {
    (void)device;
    strncpy(name, "a fake GPU", (size_t)length);
    return OK;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case 75: *value = 9; break;          /* compute capability, major */
    case 76: *value = 0; break;          /* minor */
    case 16: *value = 132; break;        /* multiprocessors */
    case 38: *value = 60 << 20; break;   /* bytes of second-level cache */
    default: *value = 1;
    }
    return OK;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = HANDLE(0xc0 + device), OK; }
int cuDevicePrimaryCtxRelease_v2(int device) { return (void)device, OK; }
int cuCtxGetCurrent(void **context) { return *context = current, OK; }
int cuCtxSetCurrent(void *context) {
    current = context;
    LOG("context %p\n", context == NULL ? HANDLE(0) : context);
    return OK;
}
int cuCtxSynchronize(void) {
    LOG("wait for all\n");
    return OK;
}
int cuModuleLoadData(void **module, const void *image) { return (void)image, *module = HANDLE(0xd0), OK; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    return (void)module, (void)name, *function = HANDLE(0xe0), OK;
}
int cuModuleUnload(void *module) { return (void)module, OK; }
int cuFuncSetAttribute(void *function, int attribute, int value) {
    return (void)function, (void)attribute, (void)value, OK;
}
int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    LOG("allocate in mode %d\n", capture_mode);
    *address = __sync_fetch_and_add(&next_address, (bytes + 511) / 256 * 256);
    return OK;
}
int cuMemFree_v2(uint64_t address) {
    (void)address;
    LOG("free\n");
    return OK;
}
int cuStreamCreate(void **stream, unsigned flags) {
    LOG("stream with flags %u\n", flags);
    return *stream = HANDLE(9), OK;
}
int cuStreamDestroy_v2(void *stream) { return (void)stream, OK; }
int cuStreamSynchronize(void *stream) {
    LOG("wait for %p\n", stream);
    return OK;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
    (void)to, (void)from, (void)bytes;
    LOG("copy on %p\n", stream);
    return OK;
}
int cuThreadExchangeStreamCaptureMode(int *mode) {
    const int before = capture_mode;
    capture_mode = *mode;
    return *mode = before, OK;
}
int cuStreamIsCapturing(void *stream, int *status) { return *status = stream == HANDLE(7), OK; }
int cuTensorMapEncodeTiled(void *map) { return (void)map, OK; }

struct launch {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
};
int cuLaunchKernelEx(const struct launch *launch, void *function, void **arguments, void **extra) {
    (void)function, (void)arguments, (void)extra;
    LOG("launch on %p\n", launch->stream);
    return OK;
}

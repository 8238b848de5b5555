/*
 * The same backward pass on an NVIDIA GPU: tensors in the GPU's memory, the work on a stream, captured in a CUDA graph.
 *
 *   cc -std=c99 -Wall -Werror backward_cuda.c $(pkg-config --cflags --libs qkv_rope) -ldl -lm -o backward_cuda
 *
 * It compiles and runs without CUDA and says then that no GPU is there. Programs that have CUDA's headers pass a CUstream
 * or a cudaStream_t and the addresses of cudaMalloc; this one declares the few driver functions that it calls.
 */
#include <dlfcn.h>

#include "problem.h"

typedef uint64_t device_address;
static int (*cuInit)(unsigned), (*cuDeviceGet)(int *, int), (*cuDevicePrimaryCtxRetain)(void **, int);
static int (*cuCtxSetCurrent)(void *), (*cuMemAlloc)(device_address *, size_t), (*cuMemFree)(device_address);
static int (*cuMemcpyHtoD)(device_address, const void *, size_t), (*cuMemcpyDtoH)(void *, device_address, size_t);
static int (*cuStreamCreate)(void **, unsigned), (*cuStreamSynchronize)(void *), (*cuStreamDestroy)(void *);
static int (*cuStreamBeginCapture)(void *, int), (*cuStreamEndCapture)(void *, void **);
static int (*cuGraphInstantiate)(void **, void *, unsigned long long), (*cuGraphLaunch)(void *, void *);
static int (*cuGraphExecDestroy)(void *), (*cuGraphDestroy)(void *);

static void find(void *library, const char *name, void *function) {
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "the driver has no %s\n", name);
        exit(1);
    }
    memcpy(function, &found, sizeof found);
}

static void load_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    find(library, "cuInit", &cuInit), find(library, "cuDeviceGet", &cuDeviceGet);
    find(library, "cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain);
    find(library, "cuCtxSetCurrent", &cuCtxSetCurrent);
    find(library, "cuMemAlloc_v2", &cuMemAlloc), find(library, "cuMemFree_v2", &cuMemFree);
    find(library, "cuMemcpyHtoD_v2", &cuMemcpyHtoD), find(library, "cuMemcpyDtoH_v2", &cuMemcpyDtoH);
    find(library, "cuStreamCreate", &cuStreamCreate), find(library, "cuStreamSynchronize", &cuStreamSynchronize);
    find(library, "cuStreamDestroy_v2", &cuStreamDestroy);
    find(library, "cuStreamBeginCapture_v2", &cuStreamBeginCapture);
    find(library, "cuStreamEndCapture", &cuStreamEndCapture);
    find(library, "cuGraphInstantiateWithFlags", &cuGraphInstantiate), find(library, "cuGraphLaunch", &cuGraphLaunch);
    find(library, "cuGraphExecDestroy", &cuGraphExecDestroy), find(library, "cuGraphDestroy", &cuGraphDestroy);
}

static void must(int code, const char *what) {
    if (code != 0) {
        fprintf(stderr, "%s: the driver answered %d\n", what, code);
        exit(1);
    }
}

/* Device memory for `bytes`, which `host` fills unless it is null. */
static device_address on_gpu(const void *host, size_t bytes) {
    device_address address = 0;
    must(cuMemAlloc(&address, bytes), "cuMemAlloc");
    if (host != NULL) must(cuMemcpyHtoD(address, host, bytes), "cuMemcpyHtoD");
    return address;
}

#define UPLOAD(tensor, array) (tensor).data = (void *)(uintptr_t)on_gpu(array, sizeof array)
#define DOWNLOAD(array, tensor) must(cuMemcpyDtoH(array, (uintptr_t)(tensor).data, sizeof array), "cuMemcpyDtoH")
#define RELEASE(tensor) must(cuMemFree((uintptr_t)(tensor).data), "cuMemFree")

static void on_stream(int32_t precision, const char *name) {
    const qkv_rope_problem problem = problem_for(precision);
    qkv_rope_cuda_session *session = NULL;
    stop_on(qkv_rope_cuda_session_create(&problem, 0, &session), "session");
    uint64_t bytes = 0;
    stop_on(qkv_rope_cuda_workspace_bytes(session, &bytes), "workspace");
    const device_address workspace = on_gpu(NULL, bytes);

    qkv_rope_inputs in = inputs_of_problem();
    UPLOAD(in.grad_query, grad_query), UPLOAD(in.grad_key, grad_key), UPLOAD(in.grad_value, grad_value);
    UPLOAD(in.hidden_states, hidden_states), UPLOAD(in.cos, cos_table), UPLOAD(in.sin, sin_table);
    UPLOAD(in.q_weight, q_weight), UPLOAD(in.k_weight, k_weight), UPLOAD(in.v_weight, v_weight);
    qkv_rope_outputs out = outputs_of_problem();
    for (size_t i = 0; i < sizeof grad_k / sizeof *grad_k; i++) grad_k[i] = 0.5f;
    UPLOAD(out.grad_hidden_states, grad_hidden), UPLOAD(out.grad_q_weight, grad_q);
    UPLOAD(out.grad_k_weight, grad_k), UPLOAD(out.grad_v_weight, grad_v);

    void *stream = NULL, *graph = NULL, *executable = NULL;
    must(cuStreamCreate(&stream, 1 /* not ordered with the default stream */), "cuStreamCreate");
    if (qkv_rope_cuda_backward(session, &in, &out, (void *)(uintptr_t)workspace, bytes - 1, stream) != QKV_ROPE_WORKSPACE)
        wrong++;
    printf("refused as it should be: %s\n", qkv_rope_last_error());
    must(cuStreamBeginCapture(stream, 0 /* nothing that allocates or waits is allowed from here */), "cuStreamBeginCapture");
    stop_on(qkv_rope_cuda_backward(session, &in, &out, (void *)(uintptr_t)workspace, bytes, stream), "backward");
    must(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    must(cuGraphInstantiate(&executable, graph, 0), "cuGraphInstantiate");
    must(cuGraphLaunch(executable, stream), "cuGraphLaunch");
    must(cuStreamSynchronize(stream), "cuStreamSynchronize");
    DOWNLOAD(grad_hidden, out.grad_hidden_states), DOWNLOAD(grad_q, out.grad_q_weight);
    DOWNLOAD(grad_k, out.grad_k_weight), DOWNLOAD(grad_v, out.grad_v_weight);
    check(0.5f);

    must(cuGraphExecDestroy(executable), "cuGraphExecDestroy"), must(cuGraphDestroy(graph), "cuGraphDestroy");
    must(cuStreamDestroy(stream), "cuStreamDestroy"), must(cuMemFree(workspace), "cuMemFree");
    RELEASE(in.grad_query), RELEASE(in.grad_key), RELEASE(in.grad_value), RELEASE(in.hidden_states);
    RELEASE(in.cos), RELEASE(in.sin), RELEASE(in.q_weight), RELEASE(in.k_weight), RELEASE(in.v_weight);
    RELEASE(out.grad_hidden_states), RELEASE(out.grad_q_weight), RELEASE(out.grad_k_weight), RELEASE(out.grad_v_weight);
    qkv_rope_cuda_session_destroy(session);
    printf("%s on GPU 0: %s, workspace %llu bytes\n", name, wrong ? "wrong" : "all outputs exact", (unsigned long long)bytes);
}

int main(void) {
    uint32_t count = 0;
    const qkv_rope_status status = qkv_rope_cuda_device_count(&count);
    if (status == QKV_ROPE_NO_DEVICE || (status == QKV_ROPE_OK && count == 0)) {
        printf("no GPU here: %s\n", status == QKV_ROPE_OK ? "the driver shows none" : qkv_rope_last_error());
        return 0;
    }
    stop_on(status, "device count");
    load_driver();
    fill_inputs();
    int device = 0;
    void *context = NULL;
    must(cuInit(0), "cuInit"), must(cuDeviceGet(&device, 0), "cuDeviceGet");
    must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    on_stream(QKV_ROPE_SPLIT, "split");
    on_stream(QKV_ROPE_FAST, "fast");
    if (wrong != 0) fprintf(stderr, "%d elements are wrong\n", wrong);
    return wrong != 0;
}

/*
 * One backward pass from C, checked against a plain loop.
 *
 *   cc -std=c99 -Wall -Werror backward.c $(pkg-config --cflags --libs qkv_rope) -lm -o backward && ./backward
 */
#include "problem.h"

int main(void) {
    if (qkv_rope_abi_version() != QKV_ROPE_ABI_VERSION) {
        fprintf(stderr, "header and library do not fit\n");
        return 1;
    }
    fill_inputs();
    const qkv_rope_problem problem = problem_for(QKV_ROPE_IEEE);
    uint64_t bytes = 0;
    stop_on(qkv_rope_workspace_bytes(&problem, &bytes), "workspace");
    qkv_rope_session *session = NULL;
    stop_on(qkv_rope_session_create(&problem, 2, &session), "session");

    qkv_rope_inputs in = inputs_of_problem();
    const qkv_rope_outputs out = outputs_of_problem();
    for (size_t i = 0; i < sizeof grad_k / sizeof *grad_k; i++) grad_k[i] = 0.5f;
    stop_on(qkv_rope_backward(session, &in, &out), "backward");
    check(0.5f);

    /* A mistake is a status and a text, and nothing is written. */
    in.q_weight.shape[0]++;
    if (qkv_rope_backward(session, &in, &out) != QKV_ROPE_SHAPE) wrong++;
    printf("refused as it should be: %s\n", qkv_rope_last_error());
    check(0.5f);

    qkv_rope_session_destroy(session);
    if (wrong != 0) {
        fprintf(stderr, "%d elements are wrong\n", wrong);
        return 1;
    }
    printf("qkv_rope %s: all outputs exact, workspace %llu bytes\n", qkv_rope_version(), (unsigned long long)bytes);
    return 0;
}

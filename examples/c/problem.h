/*
 * What both examples have in common: one problem with numbers whose sums are exact in f32, and a plain loop that says
 * what each output must be.
 */
#ifndef PROBLEM_H
#define PROBLEM_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qkv_rope.h"

enum { B = 2, S = 5, E = 24, H = 3, K = 1, D = 8, R = 6, HEADS = H + 2 * K };

static float grad_query[B * S * H * D]; /* stored [B, S, H, D], as attention leaves it */
static float grad_key[B * K * S * D], grad_value[B * K * S * D];
static float hidden_states[B * S * E];
static float q_weight[H * D * E], k_weight[K * D * E], v_weight[K * D * E];
static float cos_table[S * R], sin_table[S * R]; /* the same for every batch */
static float grad_hidden[B * S * E], grad_q[H * D * E], grad_k[K * D * E], grad_v[K * D * E];

/* Whole numbers of a small range: sums are exact in f32, so results can be compared bit for bit. */
static void fill(float *values, size_t count, unsigned seed) {
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)((int)(seed >> 28) - 8) / 4.0f;
    }
}

static void stop_on(qkv_rope_status status, const char *what) {
    if (status != QKV_ROPE_OK) {
        fprintf(stderr, "%s: status %d: %s\n", what, (int)status, qkv_rope_last_error());
        exit(1);
    }
}

/* Rank 2 to 4, densely packed, row by row. */
static qkv_rope_tensor packed(const float *data, uint32_t rank, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    qkv_rope_tensor tensor = {data, rank, 0, {a, b, c, d}, {0}};
    int64_t stride = 1;
    for (uint32_t dim = rank; dim-- > 0;) {
        tensor.strides[dim] = stride;
        stride *= (int64_t)tensor.shape[dim];
    }
    return tensor;
}

static qkv_rope_output output(float *data, int32_t write, uint32_t rank, uint64_t a, uint64_t b, uint64_t c) {
    qkv_rope_tensor like = packed(data, rank, a, b, c, 0);
    qkv_rope_output out = {data, rank, write, {0}, {0}};
    memcpy(out.shape, like.shape, sizeof out.shape);
    memcpy(out.strides, like.strides, sizeof out.strides);
    return out;
}

/* Element i of head `head` (query heads, then key, then value) of the un-rotated gradients. */
static float unrotated(int b, int s, int head, int i) {
    const float *g;
    if (head < H) {
        g = grad_query + ((b * S + s) * H + head) * D;
    } else if (head < H + K) {
        g = grad_key + ((b * K + head - H) * S + s) * D;
    } else {
        return grad_value[((b * K + head - H - K) * S + s) * D + i];
    }
    const float *c = cos_table + s * R, *n = sin_table + s * R;
    const int half = R / 2;
    if (i >= R) return g[i];
    if (i < half) return g[i] * c[i] + g[i + half] * n[i + half];
    return g[i] * c[i] - g[i - half] * n[i - half];
}

static const float *weight_row(int head, int i) {
    if (head < H) return q_weight + (head * D + i) * E;
    if (head < H + K) return k_weight + ((head - H) * D + i) * E;
    return v_weight + ((head - H - K) * D + i) * E;
}

static int wrong; /* elements that differ */

static void compare(const char *name, float found, double expected) {
    if ((double)found != expected && wrong++ < 5) fprintf(stderr, "%s: %g, expected %g\n", name, found, expected);
}

static void check(float accumulated_onto) {
    for (int b = 0; b < B; b++)
        for (int s = 0; s < S; s++)
            for (int e = 0; e < E; e++) {
                double sum = 0;
                for (int head = 0; head < HEADS; head++)
                    for (int i = 0; i < D; i++) sum += (double)unrotated(b, s, head, i) * weight_row(head, i)[e];
                compare("grad_hidden_states", grad_hidden[(b * S + s) * E + e], sum);
            }
    for (int head = 0; head < HEADS; head++)
        for (int i = 0; i < D; i++)
            for (int e = 0; e < E; e++) {
                double sum = 0;
                for (int b = 0; b < B; b++)
                    for (int s = 0; s < S; s++)
                        sum += (double)unrotated(b, s, head, i) * hidden_states[(b * S + s) * E + e];
                if (head < H) compare("grad_q_weight", grad_q[(head * D + i) * E + e], sum);
                else if (head < H + K) compare("grad_k_weight", grad_k[((head - H) * D + i) * E + e], accumulated_onto + sum);
                else compare("grad_v_weight", grad_v[((head - H - K) * D + i) * E + e], sum);
            }
}

#define FILL(array, seed) fill(array, sizeof array / sizeof *array, seed)

static void fill_inputs(void) {
    FILL(grad_query, 1), FILL(grad_key, 2), FILL(grad_value, 3), FILL(hidden_states, 4);
    FILL(q_weight, 5), FILL(k_weight, 6), FILL(v_weight, 7), FILL(cos_table, 8), FILL(sin_table, 9);
}

static qkv_rope_problem problem_for(int32_t precision) {
    qkv_rope_problem problem = {0};
    problem.abi_version = QKV_ROPE_ABI_VERSION;
    problem.pairing = QKV_ROPE_HALF_SPLIT;
    problem.precision = precision;
    problem.grad_hidden_states = problem.grad_q_weight = problem.grad_v_weight = QKV_ROPE_OVERWRITE;
    problem.grad_k_weight = QKV_ROPE_ACCUMULATE;
    problem.dims = (qkv_rope_dims){B, S, E, H, K, D, R};
    return problem;
}

static qkv_rope_inputs inputs_of_problem(void) {
    qkv_rope_inputs in;
    in.grad_query = (qkv_rope_tensor){grad_query, 4, 0, {B, H, S, D}, {S * H * D, D, H * D, 1}};
    in.grad_key = packed(grad_key, 4, B, K, S, D);
    in.grad_value = packed(grad_value, 4, B, K, S, D);
    in.hidden_states = packed(hidden_states, 3, B, S, E, 0);
    in.q_weight = packed(q_weight, 2, H * D, E, 0, 0);
    in.k_weight = packed(k_weight, 2, K * D, E, 0, 0);
    in.v_weight = packed(v_weight, 2, K * D, E, 0, 0);
    in.cos = packed(cos_table, 3, B, S, R, 0);
    in.sin = packed(sin_table, 3, B, S, R, 0);
    in.cos.strides[0] = in.sin.strides[0] = 0; /* expanded over the batch */
    return in;
}

static qkv_rope_outputs outputs_of_problem(void) {
    qkv_rope_outputs out;
    out.grad_hidden_states = output(grad_hidden, QKV_ROPE_OVERWRITE, 3, B, S, E);
    out.grad_q_weight = output(grad_q, QKV_ROPE_OVERWRITE, 2, H * D, E, 0);
    out.grad_k_weight = output(grad_k, QKV_ROPE_ACCUMULATE, 2, K * D, E, 0);
    out.grad_v_weight = output(grad_v, QKV_ROPE_OVERWRITE, 2, K * D, E, 0);
    return out;
}

#endif

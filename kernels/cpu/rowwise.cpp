// Norms, rotary positions and gated activations: every row by itself. Strides are in floats.
#include "isa.h"
#include "parallel.h"

using treadle::for_each_row;
using treadle::kernels;

// x [rows, heads, n] with row strides; the norm is over n. out may be x.
extern "C" int treadle_rms_norm(const float* x, int64_t x_stride, int64_t rows, int64_t heads, int64_t n,
                                const float* weight, float eps, float* out, int64_t out_stride, int64_t threads) {
    for_each_row(rows, heads * n, threads, [&](int64_t r) {
        for (int64_t h = 0; h < heads; ++h)
            kernels().rms_norm(x + r * x_stride + h * n, weight, n, eps, out + r * out_stride + h * n);
    });
    return 0;
}

// residual += x (or norm(x) * inner, where inner is given); out = norm(residual) * outer. out [rows, n] contiguous.
extern "C" int treadle_add_rms_norm(const float* x, int64_t x_stride, float* residual, int64_t residual_stride,
                                    int64_t rows, int64_t n, const float* inner, const float* outer, float eps,
                                    float* out, int64_t threads) {
    for_each_row(rows, n, threads, [&](int64_t r) {
        const float* added = x + r * x_stride;
        float *sum = residual + r * residual_stride, *result = out + r * n;
        if (inner) {
            kernels().rms_norm(added, inner, n, eps, result);
            added = result;
        }
        kernels().add(added, n, sum);
        kernels().rms_norm(sum, outer, n, eps, result);
    });
    return 0;
}

// x [rows, heads, n] in place: optional norm over n, then rotation. table [num_positions, n] as in reference/rope.py.
// Returns 1, and has changed nothing, for a position outside the table.
extern "C" int treadle_norm_rope(float* x, int64_t x_stride, int64_t rows, int64_t heads, int64_t n,
                                 const float* weight, float eps, const int64_t* positions, const float* table,
                                 int64_t num_positions, int64_t threads) {
    for (int64_t r = 0; r < rows; ++r)
        if (positions[r] < 0 || positions[r] >= num_positions) return 1;
    for_each_row(rows, heads * n, threads, [&](int64_t r) {
        const treadle::Rotation rotation = {table + positions[r] * n, n / 2};
        for (int64_t h = 0; h < heads; ++h) {
            float* head = x + r * x_stride + h * n;
            if (weight) kernels().rms_norm(head, weight, n, eps, head);
            kernels().rotate(head, rotation);
        }
    });
    return 0;
}

// gate_up [rows, 2 n], gate first.
extern "C" int treadle_gated(const float* gate_up, int64_t stride, int64_t rows, int64_t n, int64_t kind, float* out,
                             int64_t out_stride, int64_t threads) {
    // the exponential makes an element worth about four plain ones
    for_each_row(rows, 4 * n, threads, [&](int64_t r) {
        const float* gate = gate_up + r * stride;
        kernels().gated(gate, gate + n, n, static_cast<treadle::Gate>(kind), out + r * out_stride);
    });
    return 0;
}

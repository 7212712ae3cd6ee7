// Hyper-connections over the rows of a step. Streams x [rows, HYPER_STREAMS, d] are contiguous; d is a multiple of 16.
#include "isa.h"
#include "parallel.h"

using treadle::for_each_row;
using treadle::HYPER_STREAMS;
using treadle::HYPER_WEIGHTS;
using treadle::kernels;

// out [rows, HYPER_WEIGHTS]: pre, post, comb.
extern "C" int treadle_hyper_weights(const float* x, int64_t rows, int64_t d, const float* fn, const float* base,
                                     const float* scale, int64_t iterations, float eps, float floor, float* out,
                                     int64_t threads) {
    const treadle::HyperMatrix matrix = {fn, base, scale, d, iterations, eps, floor};
    for_each_row(rows, HYPER_WEIGHTS * HYPER_STREAMS * d, threads, [&](int64_t r) {
        kernels().hyper_weights(matrix, x + r * HYPER_STREAMS * d, out + r * HYPER_WEIGHTS);
    });
    return 0;
}

// out [rows, d]; pre has a row stride.
extern "C" int treadle_hyper_collapse(const float* x, const float* pre, int64_t pre_stride, int64_t rows, int64_t d,
                                      float* out, int64_t threads) {
    for_each_row(rows, HYPER_STREAMS * d, threads, [&](int64_t r) {
        kernels().hyper_collapse(x + r * HYPER_STREAMS * d, pre + r * pre_stride, d, out + r * d);
    });
    return 0;
}

// y [rows, d] and the weights have row strides; out like x.
extern "C" int treadle_hyper_expand(const float* y, int64_t y_stride, const float* post, int64_t post_stride,
                                    const float* comb, int64_t comb_stride, const float* x, int64_t rows, int64_t d,
                                    float* out, int64_t threads) {
    for_each_row(rows, 2 * HYPER_STREAMS * d, threads, [&](int64_t r) {
        kernels().hyper_expand(y + r * y_stride, post + r * post_stride, comb + r * comb_stride,
                               x + r * HYPER_STREAMS * d, d, out + r * HYPER_STREAMS * d);
    });
    return 0;
}

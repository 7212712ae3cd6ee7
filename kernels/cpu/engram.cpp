// N-gram memory over the rows of a step.
#include "isa.h"
#include "parallel.h"

using treadle::for_each_row;
using treadle::kernels;

// x and out [rows, streams, d] contiguous; key [rows, streams, d] and value [rows, d] have row strides.
extern "C" int treadle_engram_gate(const float* x, const float* key, int64_t key_stride, const float* value,
                                   int64_t value_stride, const float* weight, int64_t rows, int64_t streams, int64_t d,
                                   float eps, float* out, int64_t threads) {
    for_each_row(rows, 4 * streams * d, threads, [&](int64_t r) {
        for (int64_t s = 0; s < streams; ++s) {
            const int64_t at = (r * streams + s) * d;
            kernels().engram_gate(x + at, key + r * key_stride + s * d, value + r * value_stride, weight + s * d, d,
                                  eps, out + at);
        }
    });
    return 0;
}

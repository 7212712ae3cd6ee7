// Pooling of positions into entries.
#include "isa.h"
#include "parallel.h"

using treadle::for_each_row;
using treadle::kernels;

// All [rows, d] contiguous.
extern "C" int treadle_pool_pairs(const float* even, const float* even_gate, const float* odd, const float* odd_gate,
                                  int64_t rows, int64_t d, float* out, int64_t threads) {
    for_each_row(rows, 8 * d, threads, [&](int64_t r) {
        kernels().pool_pair(even + r * d, even_gate + r * d, odd + r * d, odd_gate + r * d, d, out + r * d);
    });
    return 0;
}

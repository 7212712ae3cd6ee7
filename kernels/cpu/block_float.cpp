// Rows of block-scaled small floats. Strides of packed rows are in bytes, of float rows in floats; codes and scales of
// a row may lie apart. n is a multiple of 32.
#include "isa.h"
#include "parallel.h"

using treadle::for_each_row;
using treadle::kernels;
using treadle::RowKind;

// out rows are the codes, then the scales.
extern "C" int treadle_encode_rows(int64_t kind, const float* x, int64_t x_stride, int64_t rows, int64_t n,
                                   uint8_t* out, int64_t out_stride, int64_t code_bytes, int64_t threads) {
    for_each_row(rows, 4 * n, threads, [&](int64_t r) {
        uint8_t* row = out + r * out_stride;
        kernels().encode_row(static_cast<RowKind>(kind), x + r * x_stride, n, row, row + code_bytes);
    });
    return 0;
}

extern "C" int treadle_decode_rows(int64_t kind, const uint8_t* codes, int64_t codes_stride, const uint8_t* scales,
                                   int64_t scales_stride, int64_t rows, int64_t n, float* out, int64_t threads) {
    for_each_row(rows, 2 * n, threads, [&](int64_t r) {
        kernels().decode_row(static_cast<RowKind>(kind), codes + r * codes_stride, scales + r * scales_stride, n,
                             out + r * n);
    });
    return 0;
}

extern "C" int treadle_round_rows(int64_t kind, const float* x, int64_t x_stride, int64_t rows, int64_t n, float* out,
                                  int64_t threads) {
    for_each_row(rows, 4 * n, threads, [&](int64_t r) {
        kernels().round_row(static_cast<RowKind>(kind), x + r * x_stride, n, out + r * n);
    });
    return 0;
}

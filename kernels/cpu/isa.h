// The functions that exist once per instruction set, and the choice between them.
//
// Each isa_*.cpp is one translation unit compiled for its own target through `#pragma GCC target`; the rest of the
// library is plain code that calls through the table below. The choice is made at the first call from what the
// processor reports; TREADLE_CPU_ISA (portable, avx2, avx512, amx) lowers it, so that tests can run each of them.
#pragma once

#include <cstdint>

namespace treadle {

constexpr int64_t GROUP = 32;  // weights or activations that share a scale
constexpr int64_t BLOCK = 16;  // output features stored side by side

constexpr int64_t LEVELS = 32639;  // of an activation, each side of zero: 127 * 256 + 127, both bytes within int8

// Activations rounded to 16 bits in groups: values [rows, k] of two bytes, in an order that the instruction set's own
// quantize_row and q8_block agree on; scales and offsets [rows, k / GROUP]. An offset is -128 times the sum of its
// group, the correction for kernels that read weights as unsigned bytes.
struct Q8Rows {
    const int8_t* values;
    const float* scales;
    const int32_t* offsets;
    int64_t rows;
    int64_t k;

    const int8_t* group(int64_t row, int64_t g) const { return values + (row * k + g * GROUP) * 2; }
};

// One block of output features: data [k / 4, BLOCK, 4] and scales (float16) [k / GROUP, BLOCK]. `cols` of the BLOCK
// results are stored; bias may be null.
struct Q8Block {
    const int8_t* data;
    const uint16_t* scales;
    const float* bias;
    float* out;
    int64_t out_stride;
    int64_t cols;
};

// The first rows to meet a block also wait for it to come from memory; asking for the bytes this far ahead, which may
// be those of the next block, lets the product go on. 262144 x 640, one thread: 1 row 15.7 -> 13.9 ms, 8 rows 24.4
// -> 18.1 ms; 4 to 32 KiB are alike. A prefetch past the end of the weights is ignored by the processor.
constexpr int64_t PREFETCH_BYTES = 8192;

struct Rotation {
    const float* cos_sin;  // [2, half]: cosines, then sines
    int64_t half;
};

enum class Gate : int64_t { gelu_tanh = 0, silu = 1 };

// How a row of small floats is kept: codes and scales of `reference/block_float.py`. fp8_row has one float32 scale.
enum class RowKind : int64_t { fp8 = 0, mxfp4 = 1, nvfp4 = 2, fp8_row = 3 };

// Hyper-connections of one row, for HYPER_STREAMS streams of width d: the numbers of HyperMatrix.
constexpr int64_t HYPER_STREAMS = 4;
constexpr int64_t HYPER_WEIGHTS = 2 * HYPER_STREAMS + HYPER_STREAMS * HYPER_STREAMS;  // pre, post, comb

struct HyperMatrix {
    const float* fn;  // [HYPER_WEIGHTS, HYPER_STREAMS * d]
    const float* base;
    const float* scale;
    int64_t d;
    int64_t iterations;
    float eps;
    float floor;
};

// A matrix of reference/packed_linear.py from one of its blocks on: BLOCK output features side by side.
enum class MatrixKind : int64_t { float32 = 0, fp8 = 1, fp4 = 2 };

struct Matrix {
    MatrixKind kind;
    const uint8_t* data;    // [blocks, k, BLOCK] floats or codes; fp4 [blocks, k / 2, BLOCK], even k in the low half
    const uint8_t* scales;  // [blocks, k / GROUP, BLOCK] e8m0; null for float32
    int64_t k;

    int64_t block_bytes() const { return k * BLOCK * (kind == MatrixKind::float32 ? 8 : kind == MatrixKind::fp8 ? 2 : 1) / 2; }
    Matrix from(int64_t block) const {
        return {kind, data + block * block_bytes(), scales ? scales + block * (k / GROUP) * BLOCK : nullptr, k};
    }
};

// Rows of x, picked by `index` where it is not null, and where their results go, row by row.
struct MatrixRows {
    const float* x;
    int64_t x_stride;
    const int64_t* index;
    int64_t rows;
    float* out;
    int64_t out_stride;

    const float* row(int64_t r) const { return x + (index ? index[r] : r) * x_stride; }
};

// A row of latent attention: all its heads, and the keys that it sees, which are values too.
struct LatentRow {
    const float* q;  // [heads, d]
    const float* const* keys;
    int64_t count;
    int64_t heads;
    int64_t d;
    float scale;
    float* out;
};

struct Kernels {
    const char* name;
    void (*quantize_row)(const float* x, int64_t k, int8_t* values, float* scales, int32_t* offsets);
    void (*q8_block)(const Q8Rows& x, const Q8Block& w);
    // false: a weight is not finite or its scale overflows float16
    bool (*pack_block)(const float* rows, int64_t num_rows, int64_t k, int8_t* data, uint16_t* scales);
    void (*unpack_row)(const int8_t* data, const uint16_t* scales, int64_t k, float scale, float* out);
    void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* out);
    void (*add)(const float* x, int64_t n, float* sum);
    void (*rotate)(float* x, const Rotation& rotation);
    void (*gated)(const float* gate, const float* up, int64_t n, Gate kind, float* out);
    // a row of n values; scales are bytes, of fp8_row four
    void (*encode_row)(RowKind kind, const float* x, int64_t n, uint8_t* codes, uint8_t* scales);
    void (*decode_row)(RowKind kind, const uint8_t* codes, const uint8_t* scales, int64_t n, float* out);
    void (*round_row)(RowKind kind, const float* x, int64_t n, float* out);
    void (*hyper_weights)(const HyperMatrix& matrix, const float* x, float* out);
    void (*hyper_collapse)(const float* x, const float* pre, int64_t d, float* out);
    void (*hyper_expand)(const float* y, const float* post, const float* comb, const float* x, int64_t d, float* out);
    void (*engram_gate)(const float* x, const float* key, const float* value, const float* weight, int64_t d, float eps,
                        float* out);
    void (*pool_pair)(const float* even, const float* even_gate, const float* odd, const float* odd_gate, int64_t d,
                      float* out);
    // the first block of w, `cols` of its features; panel: k * BLOCK floats of scratch
    void (*matrix_block)(const Matrix& w, const MatrixRows& rows, int64_t cols, float* panel);
    void (*clamped_swiglu)(const float* gate, const float* up, int64_t n, float limit, float factor, float* out);
    void (*latent_row)(const LatentRow& row, const float* sink, float* scores);  // scores: `count` floats of scratch
    void (*index_block)(const float* q, const float* weight, int64_t heads, int64_t d, const float* keys, float* out);
};

extern const Kernels portable_kernels;
#if defined(__x86_64__)
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
extern const Kernels amx_kernels;
#endif

const Kernels& kernels();

}  // namespace treadle

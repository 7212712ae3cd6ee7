// Kernels for AMX (Sapphire Rapids and later): AVX-512, with the int8 product of 8 rows and more on tiles.
//
// A tile product sums exact integers, as the AVX-512 kernel does, and the floating-point steps after it are the same
// in the same order: both give the same bits, so a row does not show which of them computed it.
#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "isa.h"

#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c,amx-tile,amx-int8,prefer-vector-width=512")
#define ISA_AVX512
#include "vec.h"
#include "rows.h"
#include "float_rows.h"
#include "hyper_rows.h"
#include "gate_rows.h"
#include "matrix_block.h"
#include "latent_rows.h"
#include "q8_avx512.h"

namespace {

constexpr int64_t MAX_TILE_ROWS = 16;
constexpr int64_t MIN_TILE_ROWS = 8;  // for fewer the dot instruction is as fast

// Source: Intel SDM, LDTILECFG. Tiles 0-1 are sums, 2-3 rows of x, both as high and low bytes; 4 weights.
struct TileConfig {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, GROUP, GROUP, 64};
    uint8_t rows[16] = {0, 0, 0, 0, GROUP / 4};

    explicit TileConfig(int64_t height) { rows[0] = rows[1] = rows[2] = rows[3] = static_cast<uint8_t>(height); }
};

// Integer dots of a group with the high and the low bytes of x.
struct Dots {
    int32_t high[MAX_TILE_ROWS * BLOCK];
    int32_t low[MAX_TILE_ROWS * BLOCK];
};

// For as many rows as the tiles are configured to hold.
static inline void tile_dots(const Q8Rows& x, const Q8Block& w, int64_t row, int64_t g, Dots& dots) {
    const int8_t *values = x.group(row, g), *data = w.data + g * GROUP * BLOCK;
    if (row == 0) prefetch_group(data);
    _tile_loadd(4, data, BLOCK * 4);
    _tile_zero(0);
    _tile_loadd(2, values, x.k * 2);
    _tile_dpbssd(0, 2, 4);
    _tile_zero(1);
    _tile_loadd(3, values + GROUP, x.k * 2);
    _tile_dpbssd(1, 3, 4);
    _tile_stored(0, dots.high, BLOCK * 4);
    _tile_stored(1, dots.low, BLOCK * 4);
}

template <int ROWS>
static inline void add_group(const Q8Rows& x, const Q8Block& w, int64_t row, int64_t g, const Dots& dots, __m512* total) {
    const auto* scales = reinterpret_cast<const __m256i*>(w.scales + g * BLOCK);
    const __m512 weight_scale = _mm512_cvtph_ps(_mm256_loadu_si256(scales));
    const int64_t groups = x.k / GROUP;
    const float* row_scales = x.scales + row * groups + g;
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r) {
        const __m512i high = _mm512_slli_epi32(_mm512_load_si512(dots.high + r * BLOCK), 8);
        const __m512 sums = _mm512_cvtepi32_ps(_mm512_add_epi32(high, _mm512_load_si512(dots.low + r * BLOCK)));
        total[r] = _mm512_fmadd_ps(_mm512_mul_ps(sums, _mm512_set1_ps(row_scales[r * groups])), weight_scale, total[r]);
    }
}

// The tile products of a group are issued before the sums of the group before it are used, since a product and its
// way through memory take long.
template <int ROWS>
static void amx_tile(const Q8Rows& x, const Q8Block& w, int64_t row) {
    alignas(64) Dots dots[2];
    const int64_t groups = x.k / GROUP;
    __m512 total[ROWS];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r) total[r] = _mm512_setzero_ps();
    tile_dots(x, w, row, 0, dots[0]);
    for (int64_t g = 0; g < groups; ++g) {
        if (g + 1 < groups) tile_dots(x, w, row, g + 1, dots[(g + 1) % 2]);
        add_group<ROWS>(x, w, row, g, dots[g % 2], total);
    }
    const __mmask16 mask = static_cast<__mmask16>((1u << w.cols) - 1);
    const __m512 bias = w.bias ? _mm512_maskz_loadu_ps(mask, w.bias) : _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r)
        _mm512_mask_storeu_ps(w.out + (row + r) * w.out_stride, mask, _mm512_add_ps(total[r], bias));
}

static void amx_rows(const Q8Rows& x, const Q8Block& w, int64_t row, int64_t height) {
    switch (height) {
        case 8: return amx_tile<8>(x, w, row);
        case 9: return amx_tile<9>(x, w, row);
        case 10: return amx_tile<10>(x, w, row);
        case 11: return amx_tile<11>(x, w, row);
        case 12: return amx_tile<12>(x, w, row);
        case 13: return amx_tile<13>(x, w, row);
        case 14: return amx_tile<14>(x, w, row);
        case 15: return amx_tile<15>(x, w, row);
        case 16: return amx_tile<16>(x, w, row);
    }
}

// Tiles of nearly equal height, the higher ones first, so that the tiles are configured at most twice.
static void q8_block_amx(const Q8Rows& x, const Q8Block& w) {
    if (x.rows < MIN_TILE_ROWS) return q8_block(x, w);
    const int64_t tiles = (x.rows + MAX_TILE_ROWS - 1) / MAX_TILE_ROWS;
    int64_t row = 0, configured = 0;
    for (int64_t t = 0; t < tiles; ++t) {
        const int64_t height = x.rows / tiles + (t < x.rows % tiles ? 1 : 0);
        if (height != configured) {
            const TileConfig config(height);
            _tile_loadconfig(&config);
            configured = height;
        }
        amx_rows(x, w, row, height);
        row += height;
    }
    // released per call: other libraries of the process configure tiles too
    _tile_release();
}

}  // namespace

namespace treadle {

// Linux hands the tile registers out on request, once for all threads of a process.
bool amx_permitted() {
    constexpr long ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
    constexpr unsigned AMX_TILE = 1u << 24, AMX_INT8 = 1u << 25;  // CPUID leaf 7, EDX
    unsigned eax = 7, ebx, ecx = 0, edx;
    __asm__("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
    if ((edx & AMX_TILE) == 0 || (edx & AMX_INT8) == 0) return false;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

const Kernels amx_kernels = {"amx", quantize_row<store_planes>, q8_block_amx, pack_block, unpack_row, rms_norm, add, rotate, gated,
    encode_row, decode_row, round_row, hyper_weights, hyper_collapse, hyper_expand, engram_gate, pool_pair,
    matrix_block, clamped_swiglu, latent_row, index_block};

}  // namespace treadle
#endif

// Kernels for AVX-512 with VNNI (Cascade Lake, Zen 4 and later).
#if defined(__x86_64__)
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "isa.h"

#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c,prefer-vector-width=512")
#define ISA_AVX512
#include "vec.h"
#include "rows.h"
#include "float_rows.h"
#include "hyper_rows.h"
#include "gate_rows.h"
#include "matrix_block.h"
#include "latent_rows.h"
#include "q8_avx512.h"

namespace treadle {
const Kernels avx512_kernels = {"avx512", quantize_row<store_planes>, q8_block, pack_block, unpack_row, rms_norm, add, rotate, gated,
    encode_row, decode_row, round_row, hyper_weights, hyper_collapse, hyper_expand, engram_gate, pool_pair,
    matrix_block, clamped_swiglu, latent_row, index_block};
}
#endif

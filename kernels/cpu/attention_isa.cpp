// The tile kernel of attention, compiled for each instruction set.
#include "attention.h"

#if defined(__x86_64__)
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
namespace treadle::attention::avx512 {
#define VL 16
#define NV 4
#define FMA(a, b, c) ((vf)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#include "attention_tile.h"
#undef VL
#undef NV
#undef FMA
}  // namespace treadle::attention::avx512
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace treadle::attention::avx2 {
#define VL 8
#define NV 2
#define FMA(a, b, c) ((vf)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#include "attention_tile.h"
#undef VL
#undef NV
#undef FMA
}  // namespace treadle::attention::avx2
#pragma GCC pop_options
#endif

// Vectors of four floats, which every 64-bit processor has. Products are not fused with sums, so
// that the compiler cannot fuse them differently in different places.
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
namespace treadle::attention::portable {
#define VL 4
#define NV 2
#define FMA(a, b, c) ((a) * (b) + (c))
#include "attention_tile.h"
#undef VL
#undef NV
#undef FMA
}  // namespace treadle::attention::portable
#pragma GCC pop_options

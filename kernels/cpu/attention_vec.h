// Vectors of VL floats and what attention computes with them. Included by attention_tile.h, once for
// each instruction set; no include guard.

typedef float vf __attribute__((vector_size(VL * 4)));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef float vf_any __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef uint16_t vh_any __attribute__((vector_size(VL * 2), aligned(2), may_alias));
#define INLINE static inline __attribute__((always_inline))

INLINE vf load(const float *p) { return *(const vf_any *)p; }
INLINE vf load(const uint16_t *p) {  // bfloat16
  return (vf)(__builtin_convertvector(*(const vh_any *)p, vi) << 16);
}

INLINE void store(float *p, vf x) { *(vf_any *)p = x; }
INLINE vf splat(float x) { return x - vf{}; }

INLINE vi lanes() {
  vi x;
  for (int i = 0; i < VL; i++) x[i] = i;
  return x;
}

// 2^x for x <= 0, relative error 1e-7; exactly 1 at 0 and 0 below the normal range.
INLINE vf exp2_nonpositive(vf x) {
  const vf round = splat(12582912.f);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const vf shifted = x + round;
  const vf f = x - (shifted - round);
  vf y = splat(1.54614477e-4f);
  y = FMA(y, f, splat(1.33908668e-3f));
  y = FMA(y, f, splat(9.61805694e-3f));
  y = FMA(y, f, splat(5.55035695e-2f));
  y = FMA(y, f, splat(2.40226507e-1f));
  y = FMA(y, f, splat(6.93147182e-1f));
  y = FMA(y, f, splat(1.f));
  const vf scaled = (vf)((vi)y + ((vi)shifted << 23));
  return x < splat(-126.f) ? vf{} : scaled;
}

template <int H>
INLINE vf max_lanes(vf x) {
  const vf y = __builtin_shuffle(x, lanes() ^ H);
  const vf m = x > y ? x : y;
  if constexpr (H > 1) return max_lanes<H / 2>(m);
  return m;
}

template <int H>
INLINE vf sum_lanes(vf x) {
  const vf s = x + __builtin_shuffle(x, lanes() ^ H);
  if constexpr (H > 1) return sum_lanes<H / 2>(s);
  return s;
}

// Transposes VL x VL floats in registers: log2(VL) rounds of exchanging off-diagonal halves.
template <int H>
INLINE void transpose(vf *r) {
  const vi upper = (lanes() & H) != 0;
  const vi even = upper ? lanes() - H + VL : lanes();
  const vi odd = upper ? lanes() + VL : lanes() + H;
  for (int i = 0; i < VL; i++) {
    if (i & H) continue;
    const vf a = r[i], b = r[i + H];
    r[i] = __builtin_shuffle(a, b, even);
    r[i + H] = __builtin_shuffle(a, b, odd);
  }
  if constexpr (H > 1) transpose<H / 2>(r);
}

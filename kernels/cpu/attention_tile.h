// One tile of attention: up to TILE_PAIRS (row, query head) pairs of one run that share a kv head.
//
// Included once for each instruction set by attention.cpp, inside its namespace and target region,
// with VL (floats a vector), NV (vectors a register tile is wide) and FMA defined. No include guard.
//
// Layouts: a pair's state is `state_floats(D)` floats: sum of weight * value [D], running maximum of
// the scores (in units of log2), sum of weights. Keys of a block are transposed in slices of BLOCK
// head dimensions to [BLOCK dims][BLOCK keys], so that a vector holds one dimension of VL keys.
//
// A pair's arithmetic never depends on its place in a tile: a score is one chain of FMAs over the
// dimensions, a weighted sum one chain over the keys of a block; tiles only group such chains.

typedef float vf __attribute__((vector_size(VL * 4)));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef float vf_any __attribute__((vector_size(VL * 4), aligned(4), may_alias));
#define INLINE static inline __attribute__((always_inline))

constexpr int PAIRS = 6;  // pairs in a register tile: PAIRS * NV sums, NV keys or values, 1 weight

INLINE vf load(const float *p) { return *(const vf_any *)p; }
INLINE void store(float *p, vf x) { *(vf_any *)p = x; }
INLINE vf splat(float x) { return x - vf{}; }

INLINE vi lanes() {
  vi x;
  for (int i = 0; i < VL; i++) x[i] = i;
  return x;
}

struct Scratch {
  float *q, *total, *segment, *scores, *rescale, *slice, *keys, *values;

  Scratch(float *base, int head_dim) {
    const int64_t state = state_floats(head_dim);
    q = base;
    total = q + TILE_PAIRS * state;
    segment = total + TILE_PAIRS * state;
    scores = segment + TILE_PAIRS * state;
    rescale = scores + TILE_PAIRS * BLOCK;
    slice = rescale + TILE_PAIRS;
    keys = slice + BLOCK * BLOCK;
    values = keys + BLOCK * head_dim;
  }
};

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

static void transpose_keys(const float *const *keys, int first_dim, int dims, float *slice) {
  for (int j = 0; j < BLOCK; j += VL) {
    for (int d = 0; d < dims; d += VL) {
      vf r[VL];
      for (int i = 0; i < VL; i++) r[i] = load(keys[j + i] + first_dim + d);
      transpose<VL / 2>(r);
      for (int i = 0; i < VL; i++) store(slice + (d + i) * BLOCK + j, r[i]);
    }
  }
}

// Not inlined, nor is add_values: in a large caller the compiler spills sums to memory.
template <int M>
static __attribute__((noinline)) void add_scores(const float *q, int64_t stride, const float *slice, int dims, float *scores,
                       bool first) {
  for (int g = 0; g < BLOCK; g += NV * VL) {
    vf sum[M][NV];
    for (int m = 0; m < M; m++)
      for (int n = 0; n < NV; n++)
        sum[m][n] = first ? vf{} : load(scores + m * BLOCK + g + n * VL);
    for (int d = 0; d < dims; d++) {
      vf key[NV];
      for (int n = 0; n < NV; n++) key[n] = load(slice + d * BLOCK + g + n * VL);
      for (int m = 0; m < M; m++) {
        const vf x = splat(q[m * stride + d]);
        for (int n = 0; n < NV; n++) sum[m][n] = FMA(x, key[n], sum[m][n]);
      }
    }
    for (int m = 0; m < M; m++)
      for (int n = 0; n < NV; n++) store(scores + m * BLOCK + g + n * VL, sum[m][n]);
  }
}

template <int M, int N>
static __attribute__((noinline)) void add_values(const float *weights, const float *rescale,
                                                 const float *const *values, int begin, int end,
                                                 int dim, float *state, int64_t stride) {
  vf sum[M][N];
  for (int m = 0; m < M; m++)
    for (int n = 0; n < N; n++)
      sum[m][n] = load(state + m * stride + n * VL) * splat(rescale[m]);
  for (int j = begin; j < end; j++) {
    vf value[N];
    for (int n = 0; n < N; n++) value[n] = load(values[j] + dim + n * VL);
    for (int m = 0; m < M; m++) {
      const vf w = splat(weights[m * BLOCK + j]);
      for (int n = 0; n < N; n++) sum[m][n] = FMA(w, value[n], sum[m][n]);
    }
  }
  for (int m = 0; m < M; m++)
    for (int n = 0; n < N; n++) store(state + m * stride + n * VL, sum[m][n]);
}

#define BY_PAIRS(count, CALL) \
  switch (count) { \
    case 1: CALL(1); break; \
    case 2: CALL(2); break; \
    case 3: CALL(3); break; \
    case 4: CALL(4); break; \
    case 5: CALL(5); break; \
    default: CALL(6); \
  }

// Scores -> weights in place for keys [begin, end) of the block; 0 elsewhere. Updates maximum and
// sum behind the state and says by how much the weighted sum shrinks. One instance for all callers.
static __attribute__((noinline)) void soften(float *scores, int begin, int end, float *state_tail,
                                             float *rescale) {
  vf x[BLOCK / VL];
  vf top = splat(state_tail[0]);
  for (int i = 0; i < BLOCK / VL; i++) {
    const vi key = lanes() + i * VL;
    const vi seen = (key >= begin) & (key < end);
    x[i] = seen ? load(scores + i * VL) : splat(-__builtin_inff());
    top = x[i] > top ? x[i] : top;
  }
  top = max_lanes<VL / 2>(top);
  if (begin >= end) {  // nothing seen: the state stays as it is, bit for bit
    for (int i = 0; i < BLOCK; i++) scores[i] = 0.f;
    *rescale = 1.f;
    return;
  }
  vf sum = vf{};
  for (int i = 0; i < BLOCK / VL; i++) {
    const vf w = exp2_nonpositive(x[i] - top);
    store(scores + i * VL, w);
    sum = sum + w;
  }
  const float shrink = exp2_nonpositive(splat(state_tail[0]) - top)[0];
  state_tail[0] = top[0];
  state_tail[1] = FMA(splat(state_tail[1]), splat(shrink), sum_lanes<VL / 2>(sum))[0];
  *rescale = shrink;
}

// Adds the state of one further segment to the total.
static __attribute__((noinline)) void fold(float *total, const float *segment, int head_dim) {
  const float old_top = total[head_dim], new_top = segment[head_dim];
  if (new_top == -__builtin_inff() && segment[head_dim + 1] == 0.f) return;
  const vf top = splat(old_top > new_top ? old_top : new_top);
  const vf a = exp2_nonpositive(splat(old_top) - top);
  const vf b = exp2_nonpositive(splat(new_top) - top);
  for (int d = 0; d < head_dim; d += VL)
    store(total + d, FMA(load(segment + d), b, load(total + d) * a));
  total[head_dim] = top[0];
  total[head_dim + 1] = FMA(splat(segment[head_dim + 1]), b, splat(total[head_dim + 1]) * a)[0];
}

static void clear(float *state, int pairs, int head_dim) {
  for (int i = 0; i < pairs; i++, state += state_floats(head_dim)) {
    for (int d = 0; d < head_dim; d += VL) store(state + d, vf{});
    state[head_dim] = -__builtin_inff();
    state[head_dim + 1] = 0.f;
  }
}

static void write_rows(const Call &call, const Work &work, const float *state) {
  const int group = call.heads / call.kv_heads;
  for (int i = 0; i < work.rows * group; i++, state += state_floats(call.head_dim)) {
    const int64_t row = work.run->q_start + work.row + i / group;
    const int head = work.kv_head * group + i % group;
    float *out = call.out + (row * call.heads + head) * call.head_dim;
    const vf inverse = splat(1.f / state[call.head_dim + 1]);
    for (int d = 0; d < call.head_dim; d += VL) store(out + d, load(state + d) * inverse);
  }
}

// Rows of keys and values as fp32: in place where they are, in scratch where they must be rounded
// to the pool's type or widened from it.
struct Rows {
  const float *keys[BLOCK], *values[BLOCK];
};

INLINE const float *rounded(const float *row, int head_dim, bool is_bf16, float *to) {
  if (!is_bf16) return row;
  for (int d = 0; d < head_dim; d++) to[d] = from_bf16(to_bf16(row[d]));
  return to;
}

INLINE const float *widened(const void *pool, int64_t at, int head_dim, bool is_bf16, float *to) {
  if (!is_bf16) return (const float *)pool + at;
  const uint16_t *row = (const uint16_t *)pool + at;
  for (int d = 0; d < head_dim; d++) to[d] = from_bf16(row[d]);
  return to;
}

// Finds keys [begin, end) of the block at `block`; rows outside repeat the nearest one and are
// masked later, so nothing that a request does not own is ever loaded.
static void gather(const Call &call, const Work &work, int64_t block, int64_t begin, int64_t end,
                   const Scratch &to, Rows &rows) {
  const Pool &pool = call.pool;
  const Run &run = *work.run;
  const int dim = call.head_dim;
  const int32_t *table =
      pool.page_table ? pool.page_table + run.slot * pool.table_stride : nullptr;
  int64_t page = begin / pool.outer_rows, inner = begin % pool.outer_rows;
  for (int64_t x = begin; x < end; x++) {
    const int64_t i = x - block;
    if (x >= run.first_new) {
      const int64_t row = run.k_start + x - run.first_new;
      const float *k = call.k + row * call.k_row_stride + work.kv_head * dim;
      const float *v = call.v + row * call.v_row_stride + work.kv_head * dim;
      rows.keys[i] = rounded(k, dim, pool.is_bf16, to.keys + i * dim);
      rows.values[i] = rounded(v, dim, pool.is_bf16, to.values + i * dim);
      continue;
    }
    const int64_t outer = table ? table[page] : run.slot;
    const int64_t at = outer * pool.outer_stride + inner * pool.row_stride +
                       work.kv_head * pool.head_stride;
    rows.keys[i] = widened(pool.k, at, dim, pool.is_bf16, to.keys + i * dim);
    rows.values[i] = widened(pool.v, at, dim, pool.is_bf16, to.values + i * dim);
    if (++inner == pool.outer_rows) inner = 0, page++;
  }
  for (int64_t i = 0; i < BLOCK; i++) {
    const int64_t nearest = i < begin - block ? begin - block : i < end - block ? i : end - 1 - block;
    rows.keys[i] = rows.keys[nearest], rows.values[i] = rows.values[nearest];
  }
}

struct Range {
  int begin, end;
};

// The keys of a block, relative to it, that pair `i` of the work sees.
INLINE Range seen(const Call &call, const Work &work, int64_t block, int pair) {
  const int64_t p = work.run->q_position + work.row + pair / (call.heads / call.kv_heads);
  const int64_t lo = lowest_key(*work.run, call.window, p) - block, hi = p + 1 - block;
  return {int(lo < 0 ? 0 : lo > BLOCK ? BLOCK : lo), int(hi < 0 ? 0 : hi > BLOCK ? BLOCK : hi)};
}

// Scores of a block against all pairs of the tile that see some of it.
static void score_block(const Rows &rows, const Range *range, int pairs, int dim,
                        const Scratch &scratch) {
  const int64_t stride = state_floats(dim);
  for (int d = 0; d < dim; d += BLOCK) {
    const int dims = dim - d < BLOCK ? dim - d : BLOCK;
    transpose_keys(rows.keys, d, dims, scratch.slice);
    for (int i = 0; i < pairs; i += PAIRS) {
      if (range[i / PAIRS].begin >= range[i / PAIRS].end) continue;
#define CALL(M) add_scores<M>(scratch.q + i * stride + d, stride, scratch.slice, dims, \
                              scratch.scores + i * BLOCK, d == 0)
      BY_PAIRS(pairs - i, CALL)
#undef CALL
    }
  }
}

// Weighted values of a block. When several register tiles read them, a slice is copied together
// first: rows a power of two apart would share few sets of the first-level cache.
static void value_block(const Rows &rows, const Range *range, int pairs, int dim, float *state,
                        const Scratch &scratch) {
  const int64_t stride = state_floats(dim);
  const bool packs = pairs > PAIRS;
  const float *packed[BLOCK];
  for (int d = 0, wide; d < dim; d += wide) {
    wide = dim - d >= NV * VL ? NV * VL : VL;
    for (int j = 0; packs && j < BLOCK; j++) {
      packed[j] = scratch.slice + j * wide;
      for (int n = 0; n < wide; n += VL)
        store(scratch.slice + j * wide + n, load(rows.values[j] + d + n));
    }
    const float *const *values = packs ? packed : rows.values;
    const int from = packs ? 0 : d;
    for (int i = 0; i < pairs; i += PAIRS) {
      const Range r = range[i / PAIRS];
      if (r.begin >= r.end) continue;
#define CALL(M) \
  wide == VL ? add_values<M, 1>(scratch.scores + i * BLOCK, scratch.rescale + i, values, r.begin, \
                                r.end, from, state + i * stride + d, stride) \
             : add_values<M, NV>(scratch.scores + i * BLOCK, scratch.rescale + i, values, r.begin, \
                                 r.end, from, state + i * stride + d, stride)
      BY_PAIRS(pairs - i, CALL)
#undef CALL
    }
  }
}

// Folds one block of keys into the states of the tile.
static void add_block(const Call &call, const Work &work, int64_t block, const Rows &rows,
                      const Scratch &scratch, float *state) {
  const int dim = call.head_dim, pairs = work.rows * (call.heads / call.kv_heads);
  Range range[TILE_PAIRS / PAIRS];  // of a register tile: all keys that any of its pairs sees
  for (int i = 0; i < pairs; i += PAIRS) {
    const int last = (i + PAIRS < pairs ? i + PAIRS : pairs) - 1;
    range[i / PAIRS] = {seen(call, work, block, i).begin, seen(call, work, block, last).end};
  }
  score_block(rows, range, pairs, dim, scratch);
  for (int i = 0; i < pairs; i++) {
    if (range[i / PAIRS].begin >= range[i / PAIRS].end) continue;
    const Range r = seen(call, work, block, i);
    soften(scratch.scores + i * BLOCK, r.begin, r.end, state + i * state_floats(dim) + dim,
           scratch.rescale + i);
  }
  value_block(rows, range, pairs, dim, state, scratch);
}

static void load_queries(const Call &call, const Work &work, float *to) {
  const int group = call.heads / call.kv_heads;
  const vf scale = splat(call.scale * 1.44269504f);  // scores in units of log2
  for (int i = 0; i < work.rows * group; i++, to += state_floats(call.head_dim)) {
    const float *q = call.q + (work.run->q_start + work.row + i / group) * call.q_row_stride +
                     (work.kv_head * group + i % group) * call.head_dim;
    for (int d = 0; d < call.head_dim; d += VL) store(to + d, load(q + d) * scale);
  }
}

static void run_tile(const Call &call, const Work &work, float *base, float *partial) {
  const Scratch scratch(base, call.head_dim);
  const int pairs = work.rows * (call.heads / call.kv_heads);
  const int64_t first = work.run->q_position + work.row, end = first + work.rows;
  const int64_t low = lowest_key(*work.run, call.window, first);
  load_queries(call, work, scratch.q);
  for (int64_t s = work.segment; s < work.segment_end; s++) {
    float *state = s == work.segment ? scratch.total : scratch.segment;
    if (partial) state = partial + (s - work.segment) * pairs * state_floats(call.head_dim);
    clear(state, pairs, call.head_dim);
    for (int64_t b = s * SEGMENT; b < (s + 1) * SEGMENT; b += BLOCK) {
      const int64_t from = low > b ? low : b, to = end < b + BLOCK ? end : b + BLOCK;
      if (from >= to) continue;
      Rows rows;
      gather(call, work, b, from, to, scratch, rows);
      add_block(call, work, b, rows, scratch, state);
    }
    if (partial || s == work.segment) continue;
    for (int i = 0; i < pairs; i++)
      fold(scratch.total + i * state_floats(call.head_dim),
           scratch.segment + i * state_floats(call.head_dim), call.head_dim);
  }
  if (!partial) write_rows(call, work, scratch.total);
}

// Folds the states that the pieces of `work` left in the partial buffer, as run_tile would have.
static void combine(const Call &call, const Work &work, const float *partial, float *base) {
  const Scratch scratch(base, call.head_dim);
  const int64_t floats = work.rows * (call.heads / call.kv_heads) * state_floats(call.head_dim);
  __builtin_memcpy(scratch.total, partial, floats * 4);
  for (int64_t s = work.segment + 1; s < work.segment_end; s++) {
    const float *segment = partial + (s - work.segment) * floats;
    for (int64_t i = 0; i < floats; i += state_floats(call.head_dim))
      fold(scratch.total + i, segment + i, call.head_dim);
  }
  write_rows(call, work, scratch.total);
}

const TileKernel tile_kernel = {run_tile, combine};

#undef BY_PAIRS
#undef INLINE

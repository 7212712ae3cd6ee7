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

#include "attention_vec.h"

constexpr int PAIRS = 6;  // pairs in a register tile: PAIRS * NV sums, NV keys or values, 1 weight

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

template <typename T>
static void transpose_keys(const T *const *keys, int first_dim, int dims, float *slice) {
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

template <int M, int N, typename T>
static __attribute__((noinline)) void add_values(const float *weights, const float *rescale,
                                                 const T *const *values, int begin, int end,
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

// Rows of keys and values of a block, in the pool's type: where they lie in the pool or, rounded if
// need be, among the rows of the call.
template <typename T>
struct Rows {
  const T *keys[BLOCK], *values[BLOCK];
};

INLINE const float *in_type_of(const float *row, int, float *) { return row; }

INLINE const uint16_t *in_type_of(const float *row, int head_dim, uint16_t *to) {
  for (int d = 0; d < head_dim; d++) to[d] = to_bf16(row[d]);
  return to;
}

// Finds keys [begin, end) of the block at `block`; rows outside repeat the nearest one and are
// masked later, so nothing that a request does not own is ever loaded.
template <typename T>
static void gather(const Call &call, const Work &work, int64_t block, int64_t begin, int64_t end,
                   const Scratch &to, Rows<T> &rows) {
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
      rows.keys[i] = in_type_of(k, dim, (T *)to.keys + i * dim);
      rows.values[i] = in_type_of(v, dim, (T *)to.values + i * dim);
      continue;
    }
    const int64_t outer = table ? table[page] : run.slot;
    const int64_t at = outer * pool.outer_stride + inner * pool.row_stride +
                       work.kv_head * pool.head_stride;
    rows.keys[i] = (const T *)pool.k + at;
    rows.values[i] = (const T *)pool.v + at;
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

// Asks for a slice of rows that is needed soon; its pieces are too short for the processor to guess.
template <typename T>
INLINE void prefetch(const T *const *rows, int first_dim, int dims) {
  for (int j = 0; j < BLOCK; j++)
    for (int d = 0; d < dims; d += 64 / int(sizeof(T)))
      __builtin_prefetch(rows[j] + first_dim + d, 0, 2);
}

// Scores of a block against all pairs of the tile that see some of it.
template <typename T>
static void score_block(const Rows<T> &rows, const Range *range, int pairs, int dim,
                        const Scratch &scratch) {
  const int64_t stride = state_floats(dim);
  for (int d = 0; d < dim; d += BLOCK) {
    const int dims = dim - d < BLOCK ? dim - d : BLOCK;
    transpose_keys(rows.keys, d, dims, scratch.slice);
    if (d + 2 * BLOCK <= dim) prefetch(rows.keys, d + BLOCK, BLOCK);
    prefetch(rows.values, d, dims);
    for (int i = 0; i < pairs; i += PAIRS) {
      if (range[i / PAIRS].begin >= range[i / PAIRS].end) continue;
#define CALL(M) add_scores<M>(scratch.q + i * stride + d, stride, scratch.slice, dims, \
                              scratch.scores + i * BLOCK, d == 0)
      BY_PAIRS(pairs - i, CALL)
#undef CALL
    }
  }
}

// Weighted values of dimensions [d, d + N * VL), which are `from` on in the rows of `values`.
template <int N, typename T>
static void value_slice(const T *const *values, int from, int d, const Range *range, int pairs,
                        int dim, float *state, const Scratch &scratch) {
  const int64_t stride = state_floats(dim);
  for (int i = 0; i < pairs; i += PAIRS) {
    const Range r = range[i / PAIRS];
    if (r.begin >= r.end) continue;
#define CALL(M) add_values<M, N>(scratch.scores + i * BLOCK, scratch.rescale + i, values, r.begin, \
                                 r.end, from, state + i * stride + d, stride)
    BY_PAIRS(pairs - i, CALL)
#undef CALL
  }
}

// Weighted values of a block. When several register tiles read them, a slice is copied together
// first: rows a power of two apart would share few sets of the first-level cache.
template <typename T>
static void value_block(const Rows<T> &rows, const Range *range, int pairs, int dim, float *state,
                        const Scratch &scratch) {
  const float *packed[BLOCK];
  for (int d = 0, wide; d < dim; d += wide) {
    wide = dim - d >= NV * VL ? NV * VL : VL;
    if (pairs <= PAIRS) {
      wide == VL ? value_slice<1>(rows.values, d, d, range, pairs, dim, state, scratch)
                 : value_slice<NV>(rows.values, d, d, range, pairs, dim, state, scratch);
      continue;
    }
    for (int j = 0; j < BLOCK; j++) {
      packed[j] = scratch.slice + j * wide;
      for (int n = 0; n < wide; n += VL)
        store(scratch.slice + j * wide + n, load(rows.values[j] + d + n));
    }
    wide == VL ? value_slice<1>(packed, 0, d, range, pairs, dim, state, scratch)
               : value_slice<NV>(packed, 0, d, range, pairs, dim, state, scratch);
  }
}

// Folds one block of keys into the states of the tile.
template <typename T>
static void add_block(const Call &call, const Work &work, int64_t block, const Rows<T> &rows,
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

template <typename T>
static void add_segment(const Call &call, const Work &work, int64_t segment,
                        const Scratch &scratch, float *state) {
  const int64_t first = work.run->q_position + work.row, end = first + work.rows;
  const int64_t low = lowest_key(*work.run, call.window, first);
  for (int64_t b = segment * SEGMENT; b < (segment + 1) * SEGMENT; b += BLOCK) {
    const int64_t from = low > b ? low : b, to = end < b + BLOCK ? end : b + BLOCK;
    if (from >= to) continue;
    Rows<T> rows;
    gather(call, work, b, from, to, scratch, rows);
    add_block(call, work, b, rows, scratch, state);
  }
}

static void run_tile(const Call &call, const Work &work, float *base, float *partial) {
  const Scratch scratch(base, call.head_dim);
  const int pairs = work.rows * (call.heads / call.kv_heads);
  const int64_t stride = state_floats(call.head_dim);
  load_queries(call, work, scratch.q);
  for (int64_t s = work.segment; s < work.segment_end; s++) {
    float *state = s == work.segment ? scratch.total : scratch.segment;
    if (partial) state = partial + (s - work.segment) * pairs * stride;
    clear(state, pairs, call.head_dim);
    call.pool.is_bf16 ? add_segment<uint16_t>(call, work, s, scratch, state)
                      : add_segment<float>(call, work, s, scratch, state);
    if (partial || s == work.segment) continue;
    for (int i = 0; i < pairs; i++)
      fold(scratch.total + i * stride, scratch.segment + i * stride, call.head_dim);
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

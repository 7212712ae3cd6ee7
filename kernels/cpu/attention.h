// What the drivers (attention.cpp) and the tile kernel (attention_tile.h, compiled once for each
// instruction set) say to each other.
//
// A row at position p attends keys lo(p)..p. Keys come in blocks of BLOCK and segments of SEGMENT
// positions, both aligned to ABSOLUTE positions. Within a segment the softmax runs online over its
// blocks; segments are folded in ascending order:
//
//     positions   0        256       512       768
//                 |---------|---------|---------|--
//     row p            [lo . . . . . . . . . p]
//                       seg 0 + seg 1   + seg 2
//
// So the order of every sum is a function of p and lo(p) alone: never of where a chunk started, of
// the other rows of a tile, or of how many threads share the work. Masked keys get the weight 0.
#pragma once
#include <cstdint>

namespace treadle::attention {

constexpr int BLOCK = 64;        // keys; 16 KB of transposed keys a 64-wide slice of the head
constexpr int SEGMENT = 256;     // keys; the unit in which a single decode row is split
constexpr int TILE_PAIRS = 96;   // (row, query head) pairs sharing one load of keys
constexpr int MAX_HEAD_DIM = 512;

// One run of rows of one request. Keys at or above `first_new` are rows of the call, from row
// `k_start` on; below it they are in the pool (pages, or the ring of the slot).
struct Run {
  int64_t slot, k_start, k_rows, q_start, q_rows, q_position, first_new, floor;
};

struct Pool {
  const void *k, *v;
  bool is_bf16;
  int64_t outer_stride, row_stride, head_stride;  // elements; outer: a page, or a ring
  int64_t outer_rows;                             // P, or C
  const int32_t *page_table;                      // null: a ring
  int64_t table_stride;
};

struct Call {
  const float *q, *k, *v;  // k, v null where every key is in the pool
  float *out;              // [Tq, H, D], contiguous
  int64_t q_row_stride, k_row_stride, v_row_stride;
  int heads, kv_heads, head_dim;
  int64_t window;
  float scale;
  Pool pool;
};

// Rows [row, row + rows) of a run for one kv head, over segments [segment, segment_end).
// `tile` < 0: writes `out`; else it is a piece of that tile, and the state of each of its segments
// goes to the partial buffer from `partial` on.
struct Work {
  const Run *run;
  int kv_head, row, rows;
  int64_t segment, segment_end, partial;
  int tile;
};

inline int64_t lowest_key(const Run &run, int64_t window, int64_t position) {
  const int64_t lo = position - window + 1;
  return lo > run.floor ? lo : run.floor;
}

// Floats of one (row, head) pair's softmax state: weighted sum [D], then maximum and sum of weights.
inline int64_t state_floats(int head_dim) { return head_dim + 16; }

struct TileKernel {
  void (*run)(const Call &, const Work &, float *scratch, float *partial);
  void (*combine)(const Call &, const Work &, const float *partial, float *scratch);
};

int64_t scratch_floats(int head_dim);

namespace portable { extern const TileKernel tile_kernel; }
namespace avx2 { extern const TileKernel tile_kernel; }
namespace avx512 { extern const TileKernel tile_kernel; }

// Round to nearest even, as torch does; NaN stays NaN.
inline uint16_t to_bf16(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
  return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

}  // namespace treadle::attention

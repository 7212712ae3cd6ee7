// Attention over pages and windows: checks what the call promises, plans the work, runs it on all
// threads, commits windows. The arithmetic is in attention_tile.h.
//
// Every function takes one array of int64 in the order of its `Args` (addresses, sizes, strides in
// elements) and returns 0, or a Fault whose place it leaves in the array's first four entries: run,
// slot, position, what was found. Nothing has been written when a fault is returned.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "attention.h"
#include "parallel.h"

extern "C" const char *treadle_isa();

namespace treadle::attention {
namespace {

enum Fault { NONE = 0, BAD_RUN = 1, BAD_PAGE = 2, BAD_TAG = 3 };

// Per thread, grown to what a call needs and kept: no allocation in a steady state.
struct Buffer {
  float *data = nullptr;
  int64_t size = 0;

  ~Buffer() { std::free(data); }

  float *grow(int64_t floats) {
    if (floats > size) {
      std::free(data);
      size = (floats + 1023) / 1024 * 1024;
      data = (float *)std::aligned_alloc(64, size_t(size) * sizeof(float));
      if (!data) std::abort();
    }
    return data;
  }
};

thread_local Buffer scratch_buffer, partial_buffer;

constexpr int64_t COMMIT_ROWS = 32;  // rows that a thread copies at a time
constexpr int FEW_COMMITS = 16;      // left to the calling thread

// Rows of the call that go to ring rows `position % C`.
struct Commit {
  const Run *run;
  int64_t begin, end;  // rows of the run
};

struct Plan {
  std::vector<Run> runs;
  std::vector<Work> pieces, tiles;  // what is run; tiles that were cut into pieces
  std::vector<int> pieces_left;     // of each tile: whoever runs the last piece folds them
  std::vector<Commit> commits;
  int64_t partial_floats = 0;

  void clear() {
    runs.clear(), pieces.clear(), tiles.clear(), pieces_left.clear(), commits.clear();
    partial_floats = 0;
  }
};

thread_local Plan plan_buffer;
thread_local std::vector<Work> uncut_buffer;

const TileKernel &kernel_of(const char *isa) {
#if defined(__x86_64__)
  if (!std::strcmp(isa, "avx512") || !std::strcmp(isa, "amx")) return avx512::tile_kernel;
  if (!std::strcmp(isa, "avx2")) return avx2::tile_kernel;
#endif
  return portable::tile_kernel;
}

const TileKernel &kernel() {
  static const TileKernel &chosen = kernel_of(treadle_isa());
  return chosen;
}

// Cuts a tile into pieces of `step` segments.
void cut_tile(const Call &call, Work tile, int64_t step, Plan &plan) {
  const int64_t end = tile.segment_end, start = tile.segment;
  if (end - start <= step) {
    plan.pieces.push_back(tile);
    return;
  }
  const int64_t group = call.heads / call.kv_heads;
  const int64_t floats = tile.rows * group * state_floats(call.head_dim);
  tile.partial = plan.partial_floats;
  tile.tile = int(plan.tiles.size());
  plan.tiles.push_back(tile);
  plan.pieces_left.push_back(int((end - start + step - 1) / step));
  plan.partial_floats += (end - start) * floats;
  for (int64_t s = start; s < end; s += step) {
    Work piece = tile;
    piece.segment = s;
    piece.segment_end = std::min(s + step, end);
    piece.partial += (s - start) * floats;
    plan.pieces.push_back(piece);
  }
}

// Starting the threads costs a few microseconds, as do this many multiplications.
constexpr int64_t WORTH_PRODUCTS = 1 << 17;

// Tiles of all runs, the longest first. With fewer tiles than would keep the threads busy, a tile
// is cut into pieces of some segments; what is computed does not change (attention.h). Returns how
// many threads the work is worth.
int plan_work(const Call &call, int threads, Plan &plan) {
  const int group = call.heads / call.kv_heads, tile_rows = std::max(1, TILE_PAIRS / group);
  int64_t segments = 0, products = 0;
  for (const Run &run : plan.runs) {
    for (int64_t t = (run.q_rows - 1) / tile_rows; run.q_rows > 0 && t >= 0; t--) {
      const int64_t row = t * tile_rows, rows = std::min<int64_t>(tile_rows, run.q_rows - row);
      const int64_t first = run.q_position + row;
      const int64_t lowest = lowest_key(run, call.window, first);
      const int64_t begin = lowest / SEGMENT, end = (first + rows - 1) / SEGMENT + 1;
      products += 2 * (first + rows - lowest) * rows * call.heads * call.head_dim;
      segments += (end - begin) * call.kv_heads;
      for (int h = 0; h < call.kv_heads; h++)
        plan.pieces.push_back({&run, h, int(row), int(rows), begin, end, 0, -1});
    }
  }
  if (products < WORTH_PRODUCTS) return 1;
  const int64_t wanted = 4 * threads;
  if (threads == 1 || int64_t(plan.pieces.size()) >= wanted) return threads;
  const int64_t step = std::max<int64_t>(1, segments / wanted);
  std::vector<Work> &uncut = uncut_buffer;
  uncut.swap(plan.pieces);
  plan.pieces.clear();
  for (const Work &tile : uncut) cut_tile(call, tile, step, plan);
  return threads;
}

void store_row(const float *from, void *to, int64_t at, int64_t floats, bool is_bf16) {
  if (!is_bf16) {
    std::memcpy((float *)to + at, from, size_t(floats) * sizeof(float));
    return;
  }
  uint16_t *row = (uint16_t *)to + at;
  for (int64_t i = 0; i < floats; i++) row[i] = to_bf16(from[i]);
}

void commit_rows(const Call &call, const Commit &commit, int64_t *tags) {
  const Run &run = *commit.run;
  const int64_t floats = int64_t(call.kv_heads) * call.head_dim, ring = call.pool.outer_rows;
  for (int64_t i = commit.begin; i < commit.end; i++) {
    const int64_t position = run.first_new + i, row = run.slot * ring + position % ring;
    const int64_t from = run.k_start + i;
    store_row(call.k + from * call.k_row_stride, (void *)call.pool.k, row * floats, floats,
              call.pool.is_bf16);
    store_row(call.v + from * call.v_row_stride, (void *)call.pool.v, row * floats, floats,
              call.pool.is_bf16);
    tags[row] = position;
  }
}

void run_piece(const Call &call, Plan &plan, const Work &piece, float *partial) {
  const TileKernel &tile = kernel();
  float *scratch = scratch_buffer.grow(scratch_floats(call.head_dim));
  if (piece.tile < 0) return tile.run(call, piece, scratch, nullptr);
  tile.run(call, piece, scratch, partial + piece.partial);
  if (__atomic_sub_fetch(&plan.pieces_left[piece.tile], 1, __ATOMIC_ACQ_REL) > 0) return;
  const Work &whole = plan.tiles[piece.tile];
  tile.combine(call, whole, partial + whole.partial, scratch);
}

// Attention of all runs ends before the first row is committed.
void execute(const Call &call, Plan &plan, int threads, int64_t *tags) {
  float *partial = partial_buffer.grow(plan.partial_floats);
  treadle::for_each_chunk(int64_t(plan.pieces.size()), threads, [&](int64_t i) {
    run_piece(call, plan, plan.pieces[i], partial);
  });
  const int64_t commits = int64_t(plan.commits.size());
  treadle::for_each_chunk(commits, commits < FEW_COMMITS ? 1 : threads, [&](int64_t i) {
    commit_rows(call, plan.commits[i], tags);
  });
}

// Rows that no run covers are padding: zero, so that nothing stale leaves the operator.
void clear_uncovered(const Call &call, const Plan &plan, int64_t q_rows) {
  int64_t covered = 0;
  for (const Run &run : plan.runs) covered += run.q_rows;
  if (covered != q_rows)
    std::memset(call.out, 0, size_t(q_rows) * call.heads * call.head_dim * sizeof(float));
}

struct Where {
  int64_t run, slot, position, found;
};

int report(Where &where, Fault fault, const Where &seen) {
  where = seen;
  return fault;
}

struct PagedArgs {
  Where where;
  int64_t q, q_row_stride, q_rows, heads, kv_heads, head_dim, k_pages, v_pages, is_bf16, num_pages,
      page_size, page_table, slots, table_pages, runs, num_runs, out, threads;
};

struct PagedRun {
  int64_t slot, q_start, q_rows, first_position;
};

int check(PagedArgs &a, const PagedRun &run, int64_t index) {
  const int64_t pages = (run.first_position + run.q_rows + a.page_size - 1) / a.page_size;
  if (run.slot < 0 || run.slot >= a.slots || run.q_start < 0 || run.q_rows < 0 ||
      run.q_start + run.q_rows > a.q_rows || run.first_position < 0 || pages > a.table_pages)
    return report(a.where, BAD_RUN, {index, run.slot, run.first_position, run.q_rows});
  const int32_t *table = (const int32_t *)a.page_table + run.slot * a.table_pages;
  for (int64_t p = 0; p < pages && run.q_rows > 0; p++)
    if (table[p] < 0 || table[p] >= a.num_pages)
      return report(a.where, BAD_PAGE, {index, run.slot, p * a.page_size, table[p]});
  return NONE;
}

int paged_attention(PagedArgs &a, float scale) {
  const int64_t row = a.kv_heads * a.head_dim;
  const Call call = {(const float *)a.q, nullptr, nullptr, (float *)a.out, a.q_row_stride, 0, 0,
                     int(a.heads), int(a.kv_heads), int(a.head_dim), INT64_MAX / 2,
                     scale,
                     {(const void *)a.k_pages, (const void *)a.v_pages, a.is_bf16 != 0,
                      a.page_size * row, row, a.head_dim, a.page_size,
                      (const int32_t *)a.page_table, a.table_pages}};
  Plan &plan = plan_buffer;
  plan.clear();
  const PagedRun *runs = (const PagedRun *)a.runs;
  for (int64_t i = 0; i < a.num_runs; i++) {
    if (const int fault = check(a, runs[i], i)) return fault;
    plan.runs.push_back({runs[i].slot, 0, 0, runs[i].q_start, runs[i].q_rows,
                         runs[i].first_position, INT64_MAX, 0});
  }
  clear_uncovered(call, plan, a.q_rows);
  execute(call, plan, plan_work(call, int(a.threads), plan), nullptr);
  return NONE;
}

struct WindowArgs {
  Where where;
  int64_t q, q_row_stride, q_rows, heads, kv_heads, head_dim, k, k_row_stride, v, v_row_stride,
      k_rows, ring_k, ring_v, is_bf16, tags, slots, ring_rows, runs, num_runs, window, out,
      threads;
};

struct WindowRun {
  int64_t slot, k_start, k_rows, q_start, q_rows, first_position, floor;
};

int check(WindowArgs &a, const WindowRun &run, int64_t index) {
  const int64_t first_query = run.first_position + run.k_rows - run.q_rows;
  if (run.slot < 0 || run.slot >= a.slots || run.k_start < 0 || run.q_start < 0 ||
      run.q_rows < 0 || run.q_rows > run.k_rows || run.k_start + run.k_rows > a.k_rows ||
      run.q_start + run.q_rows > a.q_rows || run.first_position < 0 || run.floor < 0 ||
      (run.q_rows > 0 && run.floor > first_query))
    return report(a.where, BAD_RUN, {index, run.slot, run.first_position, run.q_rows});
  if (run.q_rows == 0) return NONE;
  const int64_t *tags = (const int64_t *)a.tags + run.slot * a.ring_rows;
  int64_t x = std::max(run.floor, first_query - a.window + 1);
  for (int64_t at = x % a.ring_rows; x < run.first_position; x++) {
    if (tags[at] != x) return report(a.where, BAD_TAG, {index, run.slot, x, tags[at]});
    if (++at == a.ring_rows) at = 0;
  }
  return NONE;
}

void plan_commits(const Run &run, int64_t ring_rows, Plan &plan) {
  for (int64_t i = run.k_rows - std::min(run.k_rows, ring_rows); i < run.k_rows; i += COMMIT_ROWS)
    plan.commits.push_back({&run, i, std::min(i + COMMIT_ROWS, run.k_rows)});
}

int window_attention(WindowArgs &a, float scale) {
  const int64_t row = a.kv_heads * a.head_dim;
  const Call call = {(const float *)a.q, (const float *)a.k, (const float *)a.v, (float *)a.out,
                     a.q_row_stride, a.k_row_stride, a.v_row_stride, int(a.heads),
                     int(a.kv_heads), int(a.head_dim), a.window, scale,
                     {(const void *)a.ring_k, (const void *)a.ring_v, a.is_bf16 != 0,
                      a.ring_rows * row, row, a.head_dim, a.ring_rows, nullptr, 0}};
  Plan &plan = plan_buffer;
  plan.clear();
  const WindowRun *runs = (const WindowRun *)a.runs;
  for (int64_t i = 0; i < a.num_runs; i++) {
    const WindowRun &run = runs[i];
    if (const int fault = check(a, run, i)) return fault;
    plan.runs.push_back({run.slot, run.k_start, run.k_rows, run.q_start, run.q_rows,
                         run.first_position + run.k_rows - run.q_rows, run.first_position,
                         run.floor});
  }
  for (const Run &run : plan.runs) plan_commits(run, a.ring_rows, plan);
  clear_uncovered(call, plan, a.q_rows);
  execute(call, plan, plan_work(call, int(a.threads), plan), (int64_t *)a.tags);
  return NONE;
}

struct WriteArgs {
  Where where;
  int64_t k, k_row_stride, v, v_row_stride, rows, row_floats, k_pages, v_pages, is_bf16,
      num_page_rows, dst, threads;
};

int kv_write(WriteArgs &a) {
  const int64_t *dst = (const int64_t *)a.dst;
  for (int64_t i = 0; i < a.rows; i++)
    if (dst[i] < -1 || dst[i] >= a.num_page_rows)
      return report(a.where, BAD_PAGE, {i, 0, dst[i], dst[i]});
  treadle::for_each_row(a.rows, 2 * a.row_floats, a.threads, [&](int64_t i) {
    if (dst[i] < 0) return;
    const int64_t at = dst[i] * a.row_floats;
    store_row((const float *)a.k + i * a.k_row_stride, (void *)a.k_pages, at, a.row_floats,
              a.is_bf16 != 0);
    store_row((const float *)a.v + i * a.v_row_stride, (void *)a.v_pages, at, a.row_floats,
              a.is_bf16 != 0);
  });
  return NONE;
}

}  // namespace

int64_t scratch_floats(int head_dim) {
  return 3 * TILE_PAIRS * state_floats(head_dim) + TILE_PAIRS * (BLOCK + 1) + BLOCK * BLOCK +
         2 * BLOCK * head_dim;
}

}  // namespace treadle::attention

extern "C" {

int treadle_paged_attention(void *args, float scale) {
  return treadle::attention::paged_attention(*(treadle::attention::PagedArgs *)args, scale);
}

int treadle_window_attention(void *args, float scale) {
  return treadle::attention::window_attention(*(treadle::attention::WindowArgs *)args, scale);
}

int treadle_kv_write(void *args) {
  return treadle::attention::kv_write(*(treadle::attention::WriteArgs *)args);
}

}

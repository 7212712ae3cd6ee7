// Int8 product: quantise the rows of x, then walk the blocks of output features on all threads.
#include <algorithm>
#include <vector>

#include "isa.h"
#include "parallel.h"

namespace treadle {
namespace {

// Rows quantised at a time: with k = 2048 they take 1 MiB, which stays in a core's L2 while blocks pass by.
constexpr int64_t CHUNK_ROWS = 256;

struct Product {
    const float* x;
    int64_t x_stride;
    int64_t rows;
    int64_t k;
    const int8_t* data;       // first block of the slice
    const uint16_t* scales;
    int64_t features;
    const float* bias;
    float* out;
    int64_t out_stride;
};

// Reused by the calls of a thread, so that a decode step allocates nothing.
struct Scratch {
    std::vector<int8_t> values;
    std::vector<float> scales;
    std::vector<int32_t> offsets;

    void reserve(int64_t rows, int64_t k) {
        values.resize(std::max<size_t>(values.size(), rows * k * 2));
        scales.resize(std::max<size_t>(scales.size(), rows * (k / GROUP)));
        offsets.resize(std::max<size_t>(offsets.size(), rows * (k / GROUP)));
    }
};

// A unit of work: one block of features for one share of the chunk's rows.
void run_item(const Product& p, const Q8Rows& chunk, int64_t first_row, int64_t item, int64_t shares) {
    const int64_t block = item / shares, share = item % shares, groups = p.k / GROUP;
    const int64_t start = chunk.rows * share / shares, end = chunk.rows * (share + 1) / shares;
    const Q8Rows rows = {chunk.group(start, 0), chunk.scales + start * groups, chunk.offsets + start * groups,
                         end - start, p.k};
    const int64_t column = block * BLOCK;
    kernels().q8_block(rows, {p.data + column * p.k, p.scales + column * groups, p.bias ? p.bias + column : nullptr,
                              p.out + (first_row + start) * p.out_stride + column, p.out_stride,
                              std::min(BLOCK, p.features - column)});
}

// Shares of a chunk's rows, so that every thread has several items even where features are few.
int64_t row_shares(int64_t blocks, int64_t rows, int64_t threads) {
    int64_t shares = 1;
    while (blocks * shares < 4 * threads && rows / (2 * shares) >= 16) shares *= 2;
    return shares;
}

void run(const Product& p, int64_t threads) {
    static thread_local Scratch scratch;
    const int64_t groups = p.k / GROUP, blocks = (p.features + BLOCK - 1) / BLOCK;
    for (int64_t first = 0; first < p.rows; first += CHUNK_ROWS) {
        const int64_t rows = std::min(CHUNK_ROWS, p.rows - first);
        scratch.reserve(rows, p.k);
        int8_t* values = scratch.values.data();
        float* scales = scratch.scales.data();
        int32_t* offsets = scratch.offsets.data();
        for_each_row(rows, p.k, threads, [&](int64_t r) {
            kernels().quantize_row(p.x + (first + r) * p.x_stride, p.k, values + r * p.k * 2, scales + r * groups,
                                   offsets + r * groups);
        });
        const Q8Rows chunk = {values, scales, offsets, rows, p.k};
        const int64_t shares = row_shares(blocks, rows, threads), items = blocks * shares;
        const int64_t step = std::max<int64_t>(1, items / (16 * threads));
        for_each_chunk((items + step - 1) / step, threads, [&](int64_t part) {
            const int64_t end = std::min(items, (part + 1) * step);
            for (int64_t item = part * step; item < end; ++item) run_item(p, chunk, first, item, shares);
        });
    }
}

}  // namespace
}  // namespace treadle

// data, scales, bias and out belong to the slice of features wanted; bias may be null.
extern "C" int treadle_linear_q8(const float* x, int64_t x_stride, int64_t rows, int64_t k, const int8_t* data,
                                 const uint16_t* scales, int64_t features, const float* bias, float* out,
                                 int64_t out_stride, int64_t threads) {
    treadle::run({x, x_stride, rows, k, data, scales, features, bias, out, out_stride}, threads);
    return 0;
}

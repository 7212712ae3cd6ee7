// Loops over the blocks of packed matrices, shared by plain products and experts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "isa.h"
#include "parallel.h"

namespace treadle {

// One product: `blocks` blocks of w from its first on; features past `features` are padding.
struct Product {
    Matrix w;
    MatrixRows rows;
    int64_t features;
    int64_t blocks_per_group;  // each so many blocks read x a further k floats on
};

inline float* panel_of(int64_t floats) {
    static thread_local std::vector<float> panel;
    if (static_cast<int64_t>(panel.size()) < floats) panel.resize(floats);
    return panel.data();
}

inline void run_block(const Product& p, int64_t block, int64_t start, int64_t end) {
    MatrixRows rows = p.rows;
    rows.x += block / p.blocks_per_group * p.w.k;
    if (rows.index) rows.index += start;
    else rows.x += start * rows.x_stride;
    rows.rows = end - start;
    rows.out += start * rows.out_stride + block * BLOCK;
    kernels().matrix_block(p.w.from(block), rows, std::min(BLOCK, p.features - block * BLOCK), panel_of(p.w.k * BLOCK));
}

// Runs all products, cut into blocks and, where rows are many, shares of rows.
inline void run_products(const std::vector<Product>& products, int64_t threads) {
    constexpr int64_t SHARE_ROWS = 128;          // unpacking a block costs about as much as 8 rows of products
    constexpr int64_t WORTH_WEIGHTS = 1 << 15;   // sharing costs a few microseconds
    struct Item {
        const Product* product;
        int64_t block, start, end;
    };
    static thread_local std::vector<Item> buffer;
    std::vector<Item>& items = buffer;  // helpers must see the caller's
    items.clear();
    int64_t weights = 0;
    for (const Product& p : products) {
        const int64_t blocks = (p.features + BLOCK - 1) / BLOCK;
        weights += p.features * p.w.k * p.rows.rows;
        for (int64_t block = 0; block < blocks; ++block)
            for (int64_t start = 0; start < p.rows.rows; start += SHARE_ROWS)
                items.push_back({&p, block, start, std::min(p.rows.rows, start + SHARE_ROWS)});
    }
    const int64_t count = static_cast<int64_t>(items.size());
    if (weights < WORTH_WEIGHTS) threads = 1;
    const int64_t step = std::max<int64_t>(1, count / (16 * threads));
    for_each_chunk((count + step - 1) / step, threads, [&](int64_t part) {
        for (int64_t i = part * step; i < std::min(count, (part + 1) * step); ++i)
            run_block(*items[i].product, items[i].block, items[i].start, items[i].end);
    });
}

}  // namespace treadle

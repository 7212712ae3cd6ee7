// Loops over rows, on the caller alone when there is little to do.
#pragma once

#include <algorithm>
#include <cstdint>

#include "pool.h"

namespace treadle {

// Calls body(i) for i in [0, count).
template <typename Body>
void for_each_row(int64_t count, int64_t floats_per_row, int64_t threads, const Body& body) {
    constexpr int64_t WORTH_FLOATS = 1 << 16;  // sharing costs a few microseconds
    constexpr int64_t CHUNKS_PER_THREAD = 8;
    if (threads <= 1 || count < 2 || count * floats_per_row < WORTH_FLOATS) {
        for (int64_t i = 0; i < count; ++i) body(i);
        return;
    }
    const int64_t rows = std::max<int64_t>(1, count / (CHUNKS_PER_THREAD * threads));
    for_each_chunk((count + rows - 1) / rows, threads, [&](int64_t chunk) {
        const int64_t end = std::min(count, (chunk + 1) * rows);
        for (int64_t i = chunk * rows; i < end; ++i) body(i);
    });
}

}  // namespace treadle

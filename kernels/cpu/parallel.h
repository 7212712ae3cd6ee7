// Loops over rows on the OpenMP pool that torch owns.
#pragma once

#include <omp.h>

#include <cstdint>

namespace treadle {

// Calls body(i) for i in [0, count). Starting the pool costs a few microseconds, so little work stays on the caller.
template <typename Body>
void for_each_row(int64_t count, int64_t floats_per_row, int64_t threads, const Body& body) {
    constexpr int64_t WORTH_FLOATS = 1 << 17;
    if (threads <= 1 || count < 2 || count * floats_per_row < WORTH_FLOATS) {
        for (int64_t i = 0; i < count; ++i) body(i);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < count; ++i) body(i);
}

}  // namespace treadle

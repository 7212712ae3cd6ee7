// The threads of this library: loops whose caller never waits for a thread that has not begun.
//
// Chunks are claimed one by one. The caller claims too, and when none is left it waits only for
// chunks that a helper is in the middle of. So where a core is lost to another process, the caller
// does the work alone; with a pool whose threads all meet at the end of every loop, each loop would
// wait for the lost core's return, which takes milliseconds, and a decode step has a hundred loops.
#pragma once

#include <cstdint>

namespace treadle {

using ChunkFn = void (*)(void* context, int64_t chunk);

// Calls run(context, i) once for each i in [0, count), on the caller and at most threads - 1
// helpers; returns when all have returned. A second caller at the same time runs its loop alone.
void run_chunks(int64_t count, int64_t threads, ChunkFn run, void* context);

// Calls body(i) for i in [0, count). Needs count < 2^32.
template <typename Body>
void for_each_chunk(int64_t count, int64_t threads, const Body& body) {
    if (threads <= 1 || count < 2) {
        for (int64_t i = 0; i < count; ++i) body(i);
        return;
    }
    const auto run = [](void* context, int64_t i) { (*static_cast<const Body*>(context))(i); };
    run_chunks(count, threads, run, const_cast<Body*>(&body));
}

}  // namespace treadle

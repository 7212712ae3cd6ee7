// The helpers of pool.h. Idle ones spin for a moment, because the loops of a step follow each other
// within microseconds, then sleep in the kernel.
#include "pool.h"

#include <atomic>
#include <mutex>
#include <thread>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace treadle {
namespace {

constexpr int SPINS = 2000;  // about 50 to 100 us
constexpr int MAX_HELPERS = 255;

inline void pause_core() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

void sleep_while(std::atomic<uint32_t>& word, uint32_t value) {
#if defined(__linux__)
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
#else
    if (word.load() == value) std::this_thread::yield();
#endif
}

void wake_all(std::atomic<uint32_t>& word) {
#if defined(__linux__)
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, MAX_HELPERS, nullptr, nullptr, 0);
#endif
}

// One loop at a time. `claims` holds the loop's number and its next chunk in one word, so a helper
// that comes late cannot claim a chunk of a newer loop with what it has read of an older one.
class Pool {
public:
    void run(int64_t count, int64_t threads, ChunkFn body, void* context) {
        std::unique_lock<std::mutex> only(owner_, std::try_to_lock);
        if (!only.owns_lock()) {
            for (int64_t i = 0; i < count; ++i) body(context, i);
            return;
        }
        const int helpers = int(threads - 1 < MAX_HELPERS ? threads - 1 : MAX_HELPERS);
        for (; started_ < helpers; ++started_) std::thread(&Pool::help, this, started_).detach();
        const uint32_t loop = loop_.load(std::memory_order_relaxed) + 1;
        body_.store(body, std::memory_order_relaxed);
        context_.store(context, std::memory_order_relaxed);
        count_.store(count, std::memory_order_relaxed);
        wanted_.store(helpers, std::memory_order_relaxed);
        done_.store(0, std::memory_order_relaxed);
        claims_.store(uint64_t(loop) << 32, std::memory_order_release);
        loop_.store(loop);
        if (sleeping_.load() > 0) wake_all(loop_);
        work(loop);
        for (int spin = 0; done_.load(std::memory_order_acquire) < count; ++spin) {
            if (spin < SPINS) pause_core();
            else std::this_thread::yield();
        }
    }

private:
    void work(uint32_t loop) {
        for (;;) {
            uint64_t claim = claims_.load(std::memory_order_acquire);
            const int64_t chunk = int64_t(claim & 0xffffffffu);
            if (uint32_t(claim >> 32) != loop) return;
            const ChunkFn body = body_.load(std::memory_order_relaxed);
            void* const context = context_.load(std::memory_order_relaxed);
            if (chunk >= count_.load(std::memory_order_relaxed)) return;
            if (!claims_.compare_exchange_strong(claim, claim + 1, std::memory_order_acq_rel)) continue;
            body(context, chunk);
            done_.fetch_add(1, std::memory_order_release);
        }
    }

    void help(int index) {
        uint32_t seen = 0;
        for (;;) {
            for (int spin = 0; spin < SPINS && loop_.load(std::memory_order_acquire) == seen; ++spin) pause_core();
            while (loop_.load() == seen) {
                sleeping_.fetch_add(1);
                sleep_while(loop_, seen);
                sleeping_.fetch_sub(1);
            }
            seen = loop_.load(std::memory_order_acquire);
            if (index < wanted_.load(std::memory_order_relaxed)) work(seen);
        }
    }

    std::mutex owner_;
    int started_ = 0;
    std::atomic<uint32_t> loop_{0}, sleeping_{0};
    std::atomic<uint64_t> claims_{0};
    std::atomic<int64_t> count_{0}, done_{0};
    std::atomic<int> wanted_{0};
    std::atomic<ChunkFn> body_{nullptr};
    std::atomic<void*> context_{nullptr};
};

}  // namespace

void run_chunks(int64_t count, int64_t threads, ChunkFn run, void* context) {
    static Pool* const pool = new Pool;  // never destroyed: helpers outlive the statics at exit
    pool->run(count, threads, run, context);
}

}  // namespace treadle

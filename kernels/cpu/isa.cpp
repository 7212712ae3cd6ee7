// Picks the instruction set of this process.
#include "isa.h"

#include <cstdlib>
#include <cstring>

namespace treadle {

#if defined(__x86_64__)
bool amx_permitted();  // isa_amx.cpp
#endif

namespace {

const Kernels& choose() {
    const char* wanted = std::getenv("TREADLE_CPU_ISA");
    // An empty limit admits everything; a named one admits itself and what stands below it.
    auto admits = [&](const char* name) { return wanted == nullptr || *wanted == '\0' || std::strcmp(wanted, name) == 0; };
    bool below = false;
    auto allowed = [&](const char* name) { return below = below || admits(name); };
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vnni");
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (allowed("amx") && avx512 && amx_permitted()) return amx_kernels;
    if (allowed("avx512") && avx512) return avx512_kernels;
    if (allowed("avx2") && avx2) return avx2_kernels;
#endif
    return portable_kernels;
}

}  // namespace

const Kernels& kernels() {
    static const Kernels& chosen = choose();
    return chosen;
}

}  // namespace treadle

extern "C" const char* treadle_isa() { return treadle::kernels().name; }

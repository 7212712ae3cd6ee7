// float16 <-> float32 without instructions for it. Static, for the reason given in vec.h.
#pragma once

#include <cstdint>
#include <cstring>

namespace {

static inline float from_half(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
    const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13;
    float value;
    std::memcpy(&value, &magnitude, sizeof value);
    value *= 5.192296858534828e33f;  // 2^112: moves the exponent bias from 15 to 127, subnormals included
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (magnitude >= 0x0f800000) bits |= 0x7f800000;  // infinity and not-a-number
    bits |= sign;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// Rounds half to even; too large becomes infinity.
static inline uint16_t to_half(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return sign | 0x7e00;
    if (bits >= 0x477ff000) return sign | 0x7c00;  // 65520 and above
    if (bits < 0x38800000) {                       // below 2^-14: subnormal, in units of 2^-24
        float magnitude;
        std::memcpy(&magnitude, &bits, sizeof bits);
        magnitude += 0.5f;  // one unit in the last place of 0.5 is 2^-24, so the addition rounds
        std::memcpy(&bits, &magnitude, sizeof bits);
        return sign | static_cast<uint16_t>(bits - 0x3f000000);
    }
    bits += 0xfff + ((bits >> 13) & 1);
    return sign | static_cast<uint16_t>((bits - 0x38000000) >> 13);
}

}  // namespace

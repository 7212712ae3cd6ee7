// Kernels for any processor.
#include "isa.h"
#include "vec.h"
#include "rows.h"
#include "float_rows.h"
#include "hyper_rows.h"
#include "gate_rows.h"
#include "matrix_block.h"
#include "latent_rows.h"

namespace {

static void q8_block(const Q8Rows& x, const Q8Block& w) {
    const int64_t groups = x.k / GROUP;
    for (int64_t row = 0; row < x.rows; ++row) {
        float total[BLOCK] = {};
        for (int64_t g = 0; g < groups; ++g) {
            int32_t dots[BLOCK] = {};
            const int8_t* bytes = x.group(row, g);
            int32_t values[GROUP];
            for (int64_t i = 0; i < GROUP; ++i) values[i] = bytes[i] * 256 + bytes[GROUP + i];
            const int8_t* data = w.data + g * GROUP * BLOCK;
            for (int64_t k4 = 0; k4 < GROUP / 4; ++k4)
                for (int64_t j = 0; j < BLOCK; ++j)
                    for (int64_t i = 0; i < 4; ++i) dots[j] += data[(k4 * BLOCK + j) * 4 + i] * values[k4 * 4 + i];
            const float scale = x.scales[row * groups + g];
            for (int64_t j = 0; j < BLOCK; ++j)
                total[j] += static_cast<float>(dots[j]) * scale * from_half(w.scales[g * BLOCK + j]);
        }
        float* out = w.out + row * w.out_stride;
        for (int64_t j = 0; j < w.cols; ++j) out[j] = total[j] + (w.bias ? w.bias[j] : 0);
    }
}

}  // namespace

namespace treadle {
const Kernels portable_kernels = {"portable", quantize_row<store_planes>, q8_block, pack_block, unpack_row, rms_norm, add, rotate, gated,
    encode_row, decode_row, round_row, hyper_weights, hyper_collapse, hyper_expand, engram_gate, pool_pair,
    matrix_block, clamped_swiglu, latent_row, index_block};
}

// Products with matrices that stay packed.
#include "packed.h"

using namespace treadle;

// x [rows, groups * k] with a row stride; features of the slice of the matrix that data and scales point at, an equal
// number for each group. With is_rounding x is rounded to fp8 in groups of 32 before.
extern "C" int treadle_linear_packed(int64_t kind, const uint8_t* data, const uint8_t* scales, int64_t k,
                                     int64_t features, int64_t groups, const float* x, int64_t x_stride, int64_t rows,
                                     int64_t is_rounding, float* out, int64_t out_stride, int64_t threads) {
    static thread_local std::vector<float> rounded;
    static thread_local std::vector<Product> products;
    const int64_t width = groups * k;
    if (is_rounding) {
        if (static_cast<int64_t>(rounded.size()) < rows * width) rounded.resize(rows * width);
        float* to = rounded.data();
        for_each_row(rows, 4 * width, threads,
                     [&](int64_t r) { kernels().round_row(RowKind::fp8, x + r * x_stride, width, to + r * width); });
        x = to;
        x_stride = width;
    }
    products.assign(1, {{static_cast<MatrixKind>(kind), data, scales, k},
                        {x, x_stride, nullptr, rows, out, out_stride},
                        features,
                        std::max<int64_t>(1, features / groups / BLOCK)});
    if (groups == 1) products[0].blocks_per_group = (features + BLOCK - 1) / BLOCK;
    run_products(products, threads);
    return 0;
}

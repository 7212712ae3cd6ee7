"""The first half of a gated MLP: each backend against the reference."""

from __future__ import annotations

import pytest
import torch

from test.kernels.triton_ops import ops_of
from treadle.kernels.cpu import gated_linear as cpu
from treadle.kernels.inputs import activations, strided, weights
from treadle.kernels.reference import gated_linear as reference
from treadle.kernels.tolerance import assert_close
from treadle.kernels.triton import gated_linear as triton_module

triton = ops_of(triton_module)
NAMES = pytest.mark.parametrize("name", ["gelu_tanh_linear", "silu_linear"])


@NAMES
@pytest.mark.parametrize("module", [cpu, triton], ids=["cpu", "triton"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_gated_product_of_any_rows_agrees_with_the_reference(name, module, dtype):
    w = weights(76, 96, dtype=dtype)
    for rows in (0, 1, 3, 40):
        x = activations(rows, 96, dtype=dtype) / 4
        want = vars(reference)[name](x, w)
        assert_close(vars(module)[name](strided(x), w), want, "gated_linear")


@NAMES
@pytest.mark.parametrize("shape", [(30, 1030), (14, 5000), (2, 16)], ids=str)
def test_single_row_of_triton_agrees_with_the_reference(name, shape):
    """Fewer inputs than a block, several blocks, features that fill no program."""
    x = activations(1, shape[1], dtype=torch.bfloat16) / 4
    w = weights(shape[0] + 6, shape[1], dtype=torch.bfloat16)
    for part in (w[:-6], w[3:-3]):
        got = vars(triton)[name](strided(x), part)
        assert_close(got, vars(reference)[name](x, part), "gated_linear")


def test_an_odd_number_of_features_is_refused_by_triton():
    x = activations(1, 64, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="7 features are no gate and up"):
        triton.silu_linear(x, weights(7, 64, dtype=torch.bfloat16))

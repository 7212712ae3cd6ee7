"""Products with packed matrices in C++. Specification: `reference/packed_linear.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from ..reference import packed_linear as reference
from ..reference.block_float import GROUP
from ..reference.packed_linear import PackedMatrix
from .lib import ADDRESS, INT, function

_linear_packed = function(
    "treadle_linear_packed",
    (INT, ADDRESS, ADDRESS, INT, INT, INT, ADDRESS, INT, INT, INT, ADDRESS, INT, INT),
)


def linear_packed(x: Tensor, w: PackedMatrix, *, is_rounding: bool, groups: int = 1) -> Tensor:
    """See `reference.packed_linear.linear_packed`."""
    reference.check_linear_packed(x, w, groups)
    if is_rounding and w.in_features % GROUP:
        raise ValueError(f"rows of {w.in_features} values cannot be rounded in groups of {GROUP}")
    if x.dtype is not torch.float32 or x.stride(1) != 1:
        x = x.float().contiguous()
    rows, features = x.shape[0], w.out_features
    out = torch.empty(rows, features)
    _linear_packed(
        w.kind,
        w.data.data_ptr(),
        None if w.scales is None else w.scales.data_ptr(),
        w.in_features,
        features,
        groups,
        x.data_ptr(),
        x.stride(0),
        rows,
        is_rounding,
        out.data_ptr(),
        features,
        torch.get_num_threads(),
    )
    return out

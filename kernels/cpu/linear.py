"""Matrix products on the CPU: dense ones by torch (MKL, oneDNN), int8 ones by our kernel.

`linear` here is fast and not batch-invariant, except for float64, which only tests use and which
goes to the reference. `linear_q8` is batch-invariant as the reference demands.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..reference import linear as reference
from ..reference.quant import GROUP, Q8Weight
from .lib import ADDRESS, INT, function

_linear_q8 = function(
    "treadle_linear_q8", (ADDRESS, INT, INT, INT, ADDRESS, ADDRESS, INT, ADDRESS, ADDRESS, INT, INT)
)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """See `reference.linear.linear`; not batch-invariant below float64."""
    if x.dtype is torch.float64:
        return reference.linear(x, weight, bias)
    return F.linear(x, weight, bias)


def linear_q8(
    x: Tensor,
    w: Q8Weight,
    bias: Tensor | None = None,
    out_start: int = 0,
    out_end: int | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """See `reference.linear.linear_q8`."""
    start, end = reference.check_linear_q8(x, w, out_start, out_end)
    rows, in_features = x.shape
    if x.dtype is not torch.float32 or x.stride(1) != 1:
        x = x.float().contiguous()
    if bias is not None:
        bias = bias.float().contiguous()
    if out is None:
        out = torch.empty(rows, end - start)
    elif out.shape != (rows, end - start) or out.dtype is not torch.float32 or out.stride(1) != 1:
        raise ValueError(f"out must be float32 {(rows, end - start)} with dense rows")
    _linear_q8(
        x.data_ptr(),
        x.stride(0),
        rows,
        in_features,
        w.data.data_ptr() + start * in_features,
        w.scales.data_ptr() + start * _scale_bytes(in_features),
        end - start,
        None if bias is None else bias.data_ptr(),
        out.data_ptr(),
        out.stride(0),
        torch.get_num_threads(),
    )
    return out


def _scale_bytes(in_features: int) -> int:
    """Bytes of float16 scales that an output feature takes."""
    return in_features // GROUP * 2

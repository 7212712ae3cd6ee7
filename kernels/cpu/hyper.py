"""Hyper-connections in C++ for four float32 streams; anything else runs `reference/hyper.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from ..reference import hyper as reference
from ..reference.hyper import HyperMatrix
from .lib import ADDRESS, FLOAT, INT, function

STREAMS = 4  # as in isa.h
WEIGHTS = 2 * STREAMS + STREAMS * STREAMS
LANES = 16  # widths are multiples of it

_hyper_weights = function(
    "treadle_hyper_weights",
    (ADDRESS, INT, INT, ADDRESS, ADDRESS, ADDRESS, INT, FLOAT, FLOAT, ADDRESS, INT),
)
_hyper_collapse = function(
    "treadle_hyper_collapse", (ADDRESS, ADDRESS, INT, INT, INT, ADDRESS, INT)
)
_hyper_expand = function(
    "treadle_hyper_expand",
    (ADDRESS, INT, ADDRESS, INT, ADDRESS, INT, ADDRESS, INT, INT, ADDRESS, INT),
)


def hyper_weights(x: Tensor, matrix: HyperMatrix) -> tuple[Tensor, Tensor, Tensor]:
    """See `reference.hyper.hyper_weights`. Raises `ValueError` when sizes disagree."""
    parts = (matrix.fn, matrix.base, matrix.scale)
    if not _is_supported(x) or any(not _is_dense(part) for part in parts):
        return reference.hyper_weights(x, matrix)
    rows, _, width = x.shape
    shapes = [tuple(part.shape) for part in parts]
    if shapes != [(WEIGHTS, STREAMS * width), (WEIGHTS,), (3,)]:
        raise ValueError(f"hyper_weights of streams {tuple(x.shape)} with matrices {shapes}")
    out = torch.empty(rows, WEIGHTS)
    _hyper_weights(
        x.data_ptr(),
        rows,
        width,
        *(part.data_ptr() for part in parts),
        matrix.iterations,
        matrix.eps,
        matrix.floor,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    comb = out[:, 2 * STREAMS :].view(rows, STREAMS, STREAMS)
    return out[:, :STREAMS], out[:, STREAMS : 2 * STREAMS], comb


def hyper_collapse(x: Tensor, pre: Tensor) -> Tensor:
    """See `reference.hyper.hyper_collapse`."""
    rows, _, width = x.shape
    if not _is_supported(x) or not _is_rows(pre, (rows, STREAMS)):
        return reference.hyper_collapse(x, pre)
    out = torch.empty(rows, width)
    _hyper_collapse(
        x.data_ptr(),
        pre.data_ptr(),
        pre.stride(0),
        rows,
        width,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    return out


def hyper_expand(y: Tensor, post: Tensor, comb: Tensor, x: Tensor) -> Tensor:
    """See `reference.hyper.hyper_expand`."""
    rows, _, width = x.shape
    is_square = comb.stride()[1:] == (STREAMS, 1)
    if not (
        _is_supported(x)
        and _is_rows(y, (rows, width))
        and _is_rows(post, (rows, STREAMS))
        and _is_rows(comb, (rows, STREAMS, STREAMS))
        and is_square
    ):
        return reference.hyper_expand(y, post, comb, x)
    out = torch.empty(x.shape)
    _hyper_expand(
        y.data_ptr(),
        y.stride(0),
        post.data_ptr(),
        post.stride(0),
        comb.data_ptr(),
        comb.stride(0),
        x.data_ptr(),
        rows,
        width,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    return out


def _is_supported(x: Tensor) -> bool:
    return _is_dense(x) and x.shape[1] == STREAMS and x.shape[2] % LANES == 0


def _is_dense(x: Tensor) -> bool:
    return x.dtype is torch.float32 and x.is_contiguous()


def _is_rows(x: Tensor, shape: tuple[int, ...]) -> bool:
    """Rows may lie apart, what is in them is dense."""
    return x.dtype is torch.float32 and x.shape == shape and x.stride(-1) == 1

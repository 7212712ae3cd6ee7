"""Writing new keys and values into pages, as a specification.

Replayed rows are not written: their pages may be shared, and bytes of a published page never
change (rules T6, B6). The caller marks them with the destination -1.
"""

from __future__ import annotations

from torch import Tensor


def kv_write(k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, dst: Tensor) -> None:
    """Put row `i` of k and v at page `dst[i] // P`, offset `dst[i] % P`; nowhere where it is -1.

    Shapes: k, v `[T, K, D]`, rows may be strided; pages `[N, P, K, D]` of the pool's dtype, to
    which rows are rounded; dst `[T]` int64, without repeats.
    Writes: k_pages, v_pages. Raises `ValueError` for a destination outside the pages.
    """
    num_rows = k_pages.shape[0] * k_pages.shape[1]
    wrong = (dst < -1) | (dst >= num_rows)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise ValueError(f"row {row} goes to page row {int(dst[row])}, the pool has {num_rows}")
    written = dst >= 0
    k_pages.flatten(0, 1)[dst[written]] = k[written].to(k_pages.dtype)
    v_pages.flatten(0, 1)[dst[written]] = v[written].to(v_pages.dtype)

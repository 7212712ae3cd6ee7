"""Kernels that begin while the one before them ends (programmatic dependent launch, Hopper).

    launch   kernel(.., OVERLAPS=overlaps(), **overlap_options())
    inside   `begin_next(OVERLAPS)`, then what needs nothing of this step (weights, runs), then
             `await_previous(OVERLAPS)`

A step of small kernels is mostly beginnings and ends; this hides the one behind the other.
Invariant: nothing that a kernel of the step writes is read before the wait, and nothing is written.
A kernel that waits has all earlier ones behind it, as each of them has waited too.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from .device import is_interpreted


@functools.cache
def overlaps() -> bool:
    """Whether this device can."""
    return not is_interpreted() and torch.cuda.get_device_capability()[0] >= 9


def overlap_options() -> dict[str, bool]:
    """Further options of the launch; the interpreter knows none of them."""
    return {"launch_pdl": True} if overlaps() else {}


@triton.jit
def begin_next(OVERLAPS: tl.constexpr):
    """Lets the next kernel begin. Loads ahead of the wait come after it, so that both overlap."""
    if OVERLAPS:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def await_previous(OVERLAPS: tl.constexpr):
    """Lets the next kernel begin, then waits for all that came before this one."""
    if OVERLAPS:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()

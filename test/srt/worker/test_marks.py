"""Names of parts: NVTX where there is a device, ranges of a profile while one is taken."""

from __future__ import annotations

import pytest
import torch

from treadle.srt.worker.marks import Marks


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What tools of the device see, in order."""
    seen: list[str] = []
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", seen.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: seen.append("end"))
    return seen


def test_parts_lie_in_one_another(ranges: list[str]):
    marks = Marks(has_nvtx=True)
    with marks.part("step 3"), marks.part("forward"):
        pass
    assert ranges == ["step 3", "forward", "end", "end"]


def test_a_part_ends_where_it_fails(ranges: list[str]):
    with pytest.raises(ValueError, match="x"), Marks(has_nvtx=True).part("step 3"):
        raise ValueError("x")
    assert ranges == ["step 3", "end"]


def test_without_a_device_nobody_is_told(ranges: list[str]):
    marks = Marks(has_nvtx=False)
    marks.is_profiled = True
    with marks.part("step 3"):
        pass
    assert not ranges

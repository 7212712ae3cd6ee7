"""Shares of a model: consecutive, of one size, none left over."""

from __future__ import annotations

import pytest

from treadle.srt.errors import ConfigError
from treadle.srt.loader.share import WHOLE, Share


def test_shares_of_all_ranks_are_the_whole():
    held = [list(Share(rank, 4).of(384, "experts")) for rank in range(4)]
    assert [len(x) for x in held] == [96] * 4
    assert sum(held, []) == list(range(384)) == list(WHOLE.of(384, "experts"))


def test_a_count_that_does_not_divide_is_refused():
    with pytest.raises(ConfigError, match=r"--tp-size 7: .* 384 experts"):
        Share(0, 7).of(384, "experts")

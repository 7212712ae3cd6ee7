"""One copy up, and what comes down."""

from __future__ import annotations

import numpy as np
import torch

from treadle.srt.worker.transfer import Moment, download, upload

CPU = torch.device("cpu")


def test_arrays_keep_shapes_and_dtypes():
    arrays = [
        np.arange(6).reshape(2, 3),
        np.array([0.5, -1e300]),
        np.empty(0, dtype=np.int64),
        np.arange(8)[::2],
        np.empty((0, 4), dtype=np.int64),
    ]
    for got, want in zip(upload(arrays, CPU), arrays, strict=True):
        assert torch.equal(got, torch.from_numpy(want.copy()))


def test_fixed_place_is_overwritten_and_shared():
    place = torch.zeros(10, dtype=torch.int64)
    parts = upload([np.array([1, 2]), np.array([[3, 4]])], CPU, into=place)
    assert place.tolist() == [1, 2, 3, 4, 0, 0, 0, 0, 0, 0]
    upload([np.array([5, 6]), np.array([[7, 8]])], CPU, into=place)
    assert [x.tolist() for x in parts] == [[5, 6], [[7, 8]]]


def test_on_the_cpu_everything_is_there_at_once():
    x = torch.ones(3)
    assert download(x) is x
    began, ended = Moment(CPU), Moment(CPU)
    ended.reached()
    assert ended.since(began) == 0.0

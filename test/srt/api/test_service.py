"""Which model names a server answers to."""

from __future__ import annotations

import pytest

from test.serving import serving
from treadle.srt.config import NetSection


@pytest.mark.parametrize(("name", "status"), [("tiny", 200), (None, 200), ("gpt-4", 404)])
async def test_strict_names_refuse_other_models(name: str | None, status: int):
    async with serving(net=NetSection(strict_model_name=True)) as bench:
        response = await bench.post("/v1/completions", {"prompt": "a", "model": name})
        assert response.status_code == status
        if status == 404:
            assert response.json()["error"]["code"] == "model_not_found"
            assert response.json()["error"]["param"] == "model"


async def test_any_name_is_accepted_by_default_and_the_served_one_answered():
    async with serving() as bench:
        body = (await bench.post("/v1/completions", {"prompt": "a", "model": "gpt-4"})).json()
        assert body["model"] == "tiny"

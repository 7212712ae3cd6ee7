"""Expected outputs of DeepSeek-V4.1 asked of a server: the flags that a file needs, and comparing.

A row of a prompt is read by its score, which says what follows it; the last by the first token of
output. Scores are of untrimmed rows, so of a trimmed prompt only the last row is compared. Of a row
128 ids are compared: the likeliest, and random ones. They are compared with the log-softmax of
expected logits.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import pytest
import torch
from torch import Tensor

from test.e2e.server import Server
from test.v41 import CHECKPOINTS, FLIPPED, NAMES, golden, manifest

W = 128
NUM_IDS = 128  # as many as a request may ask for
NUM_RANDOM = 64
GREEDY = "greedy"  # stands for all files that begin so
QUICK = {  # of the larger checkpoint
    *("cold_2", "cold_300", "chunked_300", "trim_300_prompt_chunk0_clip", GREEDY),
    *("trim_777_prompt_chunk200_clip", "warm_H64_N264_trim_drop"),
    *("warm_H256_N456_full_drop", "warm_H256_N456_trim_drop", "warm_H512_N513_trim_drop"),
}
FLAGS = (
    *("--kv-cache-memory", "64M", "--page-size", "2", "--max-warm-windows", "0"),
    *("--max-running-requests", "8", "--num-threads", "1"),
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a server is started with."""

    name: str
    kv_dtype: str
    chunk: int
    flags: tuple[str, ...]

    @property
    def argv(self) -> tuple[str, ...]:
        model = ("--model-path", str(CHECKPOINTS / self.name), "--port", "0")
        sizes = ("--kv-cache-dtype", self.kv_dtype, "--chunked-prefill-size", str(self.chunk))
        return (*model, *sizes, *FLAGS, *self.flags)

    @property
    def is_common(self) -> bool:
        return not self.flags


@dataclass(frozen=True, slots=True)
class Case:
    setting: Setting
    file: str

    @property
    def kind(self) -> str:
        return self.file.split("_")[0]

    @property
    def is_exact(self) -> bool:
        return self.setting.kv_dtype == "float32"

    @property
    def is_trimmed(self) -> bool:
        return "trim" in self.file

    @property
    def hit(self) -> int:
        """Tokens shared with the request before it."""
        found = re.search(r"_H(\d+)_", self.file)
        return int(found[1]) if found else 0


def setting_of(name: str, file: str, kv_dtype: str) -> Setting:
    """Exact prompts of more than 200 tokens run in chunks, which may change nothing."""
    chunk = 200 if kv_dtype == "float32" else 1024
    flags: tuple[str, ...] = ()
    if "noclip" in file:
        flags += ("--no-swa-trim-clip",)
    if file.endswith("_replay"):
        flags += ("--swa-short-hits", "replay")
    if found := re.search(r"_chunk_chunk(\d+)", file):
        chunk = int(found[1])
        flags += ("--swa-trim-rule", "chunk", "--disable-radix-cache")
    return Setting(name, kv_dtype, chunk, flags)


def cases(*, is_common: bool) -> list[Any]:
    """Parameters of a test, those of one server after those of another."""
    found: list[Case] = []
    for name in NAMES:
        for kv_dtype in ("float32", "fp4"):
            files = [x for x in manifest(name) if x.split("_")[0] in CHECKS]
            if kv_dtype == "fp4":
                files.append(GREEDY)
            found += [Case(setting_of(name, file, kv_dtype), file) for file in files]
    settings = list(dict.fromkeys(case.setting for case in found))
    found.sort(key=lambda case: settings.index(case.setting))
    return [as_param(case) for case in found if case.setting.is_common == is_common]


def as_param(case: Case) -> Any:
    kind = "exact" if case.is_exact else "packed"
    is_quick = case.setting.is_common and (case.setting.name == "v41-nano" or case.file in QUICK)
    if case.file == GREEDY and not case.is_exact:  # through the model alone in any case
        is_quick = False
    marks = [] if is_quick else [pytest.mark.long]
    return pytest.param(case, id=f"{case.setting.name}-{kind}-{case.file}", marks=marks)


class OneServer:
    """The server of the newest setting that was asked for; the one before is stopped."""

    def __init__(self) -> None:
        self._setting: Setting | None = None
        self._server: Server | None = None

    def of(self, setting: Setting) -> Server:
        if self._server is None or setting != self._setting:
            self.close()
            self._setting, self._server = setting, Server(*setting.argv)
            self._server.wait_until_serving()
        return self._server

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


def generate(server: Server, ids: list[int], tokens: int, **fields: object) -> dict[str, Any]:
    sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
    body = {"input_ids": ids, "sampling_params": sampling, **fields}
    response = httpx.post(server.url + "/generate", json=body, timeout=300)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def compared_ids(expected: Tensor) -> list[int]:
    """The likeliest ids of each row of `expected` [R, V], then random ones."""
    vocab = expected.shape[1]
    order = torch.randperm(vocab, generator=torch.Generator().manual_seed(1)).tolist()
    random = order[:NUM_RANDOM]
    best = expected.topk((NUM_IDS - NUM_RANDOM) // len(expected)).indices.flatten().tolist()
    likely = [i for i in dict.fromkeys(best) if i not in set(random)]
    return [*random, *likely]


def check(case: Case, server: Server, rows: list[int], **fields: object) -> dict[str, Any]:
    """Logprobs after `rows` of the case's prompt, within the manifest's allowance. Returns what the
    answer says of itself. Rows but the last are scored."""
    data = golden(case.setting.name, case.file)
    key = "logits_exact" if case.is_exact else "logits"
    known = data["rows"].tolist() if "rows" in data else [len(data["ids"]) - 1]
    expected = data[key][[known.index(row) for row in rows]].log_softmax(-1)
    ids = compared_ids(expected)
    meta: dict[str, Any] = generate(
        server, data["ids"].tolist(), 1, return_logprob=True, token_ids_logprob=ids, **fields
    )["meta_info"]
    scored = meta.get("input_token_ids_logprobs", [])
    first = len(data["ids"]) - len(scored) - 1
    chosen = [*(scored[row - first] for row in rows[:-1]), meta["output_token_ids_logprobs"][0]]
    found = torch.tensor([[logprob for logprob, _, _ in row] for row in chosen])
    within(case, key, found - expected[:, ids])
    return meta


def within(case: Case, key: str, difference: Tensor) -> None:
    """`difference` [R, I] of logprobs, random ids first. The allowance is of logits, which logprobs
    tell up to a constant per row: for the mean it is taken off."""
    known = manifest(case.setting.name)
    tolerance = known[case.file]["tolerance"]
    if f"{key}_max_abs" not in tolerance:  # the manifest says only that chunks change nothing
        tolerance = known[case.file.replace("chunked", "cold")]["tolerance"]
    slack = 1.0 if case.is_exact else FLIPPED.get(case.file, 1.0)
    assert difference.abs().max() <= slack * 2 * tolerance[f"{key}_max_abs"]
    if not case.is_exact:
        random = difference[:, :NUM_RANDOM]
        random = random - random.median(dim=1, keepdim=True).values
        assert random.abs().mean() <= slack * 1.5 * tolerance["logits_mean_abs"]


def check_cold(server: Server, case: Case) -> None:
    data = golden(case.setting.name, case.file)
    rows = data["rows"].tolist()
    start = {} if len(rows) == 1 else {"logprob_start_len": rows[0] + 1}
    meta = check(case, server, rows, swa_replay="exact", cache_salt=case.file, **start)
    assert meta["cached_tokens"] == 0


def check_trim(server: Server, case: Case) -> None:
    """B17: rows that decoder layers leave out, both rules, both clips."""
    rows = [len(golden(case.setting.name, case.file)["ids"]) - 1]
    meta = check(case, server, rows, cache_salt=case.file)
    assert meta["cached_tokens"] == 0


def check_warm(server: Server, case: Case) -> None:
    """B1-B8: a hit on the entries of a request that was here before, its window replayed."""
    data = golden(case.setting.name, case.file)
    generate(server, data["ids_first"].tolist(), 0, cache_salt=case.file)
    rows = data["rows"].tolist()
    fields: dict[str, object] = {"swa_replay": "bounded", "cache_salt": case.file}
    if case.is_trimmed:
        rows = rows[-1:]
    else:
        fields["logprob_start_len"] = rows[0] + 1
    meta = check(case, server, rows, **fields)
    used = 0 if case.hit <= W and "_drop" in case.file else case.hit
    assert (meta["cached_tokens"], meta["replayed_tokens"]) == (used, min(used, W))


def check_greedy(server: Server, case: Case) -> None:
    """All files at once, so that requests of different lengths share steps."""
    files = [file for file in manifest(case.setting.name) if file.startswith(case.file)]
    with ThreadPoolExecutor(len(files)) as threads:
        list(threads.map(partial(check_continuation, server, case.setting.name), files))


def check_continuation(server: Server, name: str, file: str) -> None:
    """Step by step as expected, but where the margin of the expected token is within the allowance
    of logits: from there on with that token. Requests share steps, and who with whom depends on the
    clock: sums in another order put values on the other side of a rounding tie."""
    data, tolerance = golden(name, file), manifest(name)[file]["tolerance"]
    expected, margins = data["continuation"].tolist(), data["margin"].tolist()
    done, missed = 0, 0
    while done < len(expected):
        prompt = [*data["ids"].tolist(), *expected[:done]]
        tokens = generate(server, prompt, len(expected) - done, swa_replay="off")["output_ids"]
        agree = [a == b for a, b in zip(tokens, expected[done:], strict=True)]
        if all(agree):
            break
        done += agree.index(False) + 1
        missed += 1
        assert margins[done - 1] < 2 * tolerance["logits_max_abs"], file
    allowed = tolerance["argmax_agree_bf16_teacher_forced"]
    assert 1 - missed / len(expected) >= allowed - 0.05, file


CHECKS = {
    "cold": check_cold,
    "chunked": check_cold,
    "trim": check_trim,
    "warm": check_warm,
}


def check_case(server: Server, case: Case) -> None:
    if case.file == GREEDY:
        check_greedy(server, case)
    else:
        CHECKS[case.kind](server, case)

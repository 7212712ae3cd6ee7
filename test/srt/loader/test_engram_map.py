"""The constants of an Engram hash."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tokenizers import Tokenizer

from test.kernels.test_engram import RELEASED
from test.srt.test_deepseek_v41_config import CHECKPOINTS
from treadle.srt.checkpoint import load_model_config
from treadle.srt.errors import CheckpointError
from treadle.srt.loader.engram_map import multipliers, primes, token_map


def test_released_constants_are_the_published_ones():
    assert multipliers(1, RELEASED) == [
        76632096046245, 4839876093313, 35959672319349, 73987337458391,
    ]  # fmt: skip
    assert multipliers(14, RELEASED)[0] == 67716810739261
    found = [sum(layer, []) for layer in primes(RELEASED)]
    assert (found[0][0], found[0][-1]) == (16000057, 16000463)
    assert (found[1][0], found[1][-1]) == (16000477, 16000889)
    assert tuple(map(sum, found)) == RELEASED.rows


@pytest.mark.parametrize(("name", "keys"), [("v41-mini", 5638), ("v41-nano", 483)])
def test_a_tokenizer_has_as_many_keys_as_its_configuration_says(name, keys):
    folder = CHECKPOINTS / name
    config = load_model_config(folder)
    engram = config.latent.engram
    mapped = token_map(folder, engram, config.vocab_size)
    assert len(mapped) == config.vocab_size and max(mapped) + 1 == keys
    assert mapped[engram.pad_id] == 2
    with pytest.raises(CheckpointError, match="distinct keys"):
        token_map(folder, replace(engram, num_compressed=keys + 1), config.vocab_size)


def test_words_that_differ_in_case_accent_or_space_share_an_id():
    folder = CHECKPOINTS / "v41-mini"
    config = load_model_config(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    mapped = token_map(folder, config.latent.engram, config.vocab_size)
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in ("the", " The", " the")]
    assert all(len(x) == 1 for x in ids)
    assert len({mapped[x[0]] for x in ids}) == 1


def test_an_identity_map_needs_no_tokenizer(tmp_path):
    assert token_map(tmp_path, replace(RELEASED, num_compressed=9), 9) == list(range(9))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        token_map(tmp_path, RELEASED, 9)

"""A `Vocabulary` from a Hugging Face folder.

Owns the reading of `tokenizer.json` and of the small files beside it:

    tokenizer_config.json      names of the special tokens, add_bos_token, chat_template
    chat_template.jinja        wins over the template in tokenizer_config.json
    generation_config.json     eos_token_id (one or a list); config.json where that is absent

What `tokenizer.json` says of truncation and padding is for training and is switched off.
"""

from __future__ import annotations

from pathlib import Path

import orjson
from tokenizers import Tokenizer as MergeEngine

from ..errors import CheckpointError
from .vocabulary import SPACE_MARK, Spelling, Vocabulary

Json = dict[str, object]


def read_folder_vocabulary(folder: Path) -> Vocabulary:
    """Raises: CheckpointError when a file is absent, is no JSON or has a decoder unknown to us."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError(f"{folder}: expected a tokenizer.json, found none")
    engine = _engine(path)
    decoder_steps = _decoder_steps(_object(path))
    config = _object(folder / "tokenizer_config.json")
    ids = engine.get_vocab(with_added_tokens=True)
    pieces = [""] * (max(ids.values(), default=-1) + 1)
    for piece, index in ids.items():
        pieces[index] = piece
    added = engine.get_added_tokens_decoder()
    prefix, suffix = _frame(engine)
    texts = _role_texts(config)
    bos_id = ids.get(texts.get("bos_token", ""))
    if bos_id is not None and config.get("add_bos_token") is not None:
        prefix = tuple(index for index in prefix if index != bos_id)
        prefix = (bos_id, *prefix) if config["add_bos_token"] else prefix
    model_config = _object(folder / "config.json")
    return Vocabulary(
        engine=engine,
        spelling=_spelling(path, decoder_steps),
        pieces=pieces,
        literals={index: token.content for index, token in added.items()},
        special=frozenset(index for index, token in added.items() if token.special),
        prefix=prefix,
        suffix=suffix,
        bos_id=bos_id,
        eos_ids=_eos_ids(folder, model_config, ids.get(texts.get("eos_token", ""))),
        role_texts=texts,
        has_dummy_prefix=_strips_a_space(decoder_steps),
        chat_template=_chat_template(folder, config),
        architecture=str(model_config.get("model_type", "")),
    )


def _engine(path: Path) -> MergeEngine:
    try:
        engine = MergeEngine.from_file(str(path))
    except Exception as error:  # the library raises this very class for any bad file
        raise CheckpointError(f"{path}: {error}") from None
    engine.no_truncation()
    engine.no_padding()
    return engine


def _object(path: Path) -> Json:
    """The JSON object in a file; empty when there is no such file."""
    if not path.is_file():
        return {}
    try:
        value = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise CheckpointError(f"{path}: expected JSON: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def _decoder_steps(description: Json) -> list[Json]:
    decoder = description.get("decoder") or description.get("pre_tokenizer")
    if not isinstance(decoder, dict):
        return []
    steps = decoder.get("decoders") or decoder.get("pretokenizers") or [decoder]
    return [step for step in steps if isinstance(step, dict)]


def _spelling(path: Path, steps: list[Json]) -> Spelling:
    kinds = {step.get("type") for step in steps}
    if "ByteLevel" in kinds:
        return Spelling.BYTE_LEVEL
    if kinds & {"ByteFallback", "Metaspace"}:
        return Spelling.SENTENCEPIECE
    if any(step.get("pattern") == {"String": SPACE_MARK} for step in steps):
        return Spelling.SENTENCEPIECE
    found = ", ".join(sorted(str(kind) for kind in kinds)) or "none"
    raise CheckpointError(
        f"{path}: decoder: expected ByteLevel, ByteFallback or Metaspace, found {found}"
    )


def _strips_a_space(steps: list[Json]) -> bool:
    for step in steps:
        if step.get("type") == "Strip" and step.get("content") == " " and step.get("start") == 1:
            return True
        if step.get("type") == "Metaspace":
            scheme = step.get("prepend_scheme", "always")
            return scheme != "never" and step.get("add_prefix_space") is not False
    return False


def _frame(engine: MergeEngine) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that the post-processor puts before and after a text."""
    bare = engine.encode("a", add_special_tokens=False).ids
    full = engine.encode("a", add_special_tokens=True).ids
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare:
            return tuple(full[:start]), tuple(full[start + len(bare) :])
    return (), ()


def _role_texts(config: Json) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        value = config.get(name)
        if isinstance(value, dict):  # an AddedToken written out
            value = value.get("content")
        if isinstance(value, str):
            found[name] = value
    return found


def _eos_ids(folder: Path, model_config: Json, eos_id: int | None) -> tuple[int, ...]:
    generation = _object(folder / "generation_config.json")
    listed = generation.get("eos_token_id", model_config.get("eos_token_id"))
    found = [eos_id, *(listed if isinstance(listed, list) else [listed])]
    return tuple(dict.fromkeys(index for index in found if isinstance(index, int)))


def _chat_template(folder: Path, config: Json) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    value = config.get("chat_template")
    if isinstance(value, list):  # several, by name
        named = {x.get("name"): x.get("template") for x in value if isinstance(x, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None

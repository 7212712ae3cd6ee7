"""All flags of ours, in the order of the help. Those of other servers are in `foreign.py`."""

from __future__ import annotations

from .engine import CACHE, PARALLEL, SCHEDULING
from .model import MODEL
from .row import Flag
from .server import SERVER
from .watching import LOGGING

SECTIONS: tuple[tuple[str, tuple[Flag, ...]], ...] = (
    ("model and tokenizer", MODEL),
    ("server", SERVER),
    ("scheduling", SCHEDULING),
    ("cache and replay", CACHE),
    ("devices and parallelism", PARALLEL),
    ("logging and metrics", LOGGING),
)

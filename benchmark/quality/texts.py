"""Texts to measure on: documents, code and agent chats, found on this machine when asked for.

Files of this repository, and READMEs and sources of installed packages read through
`importlib.metadata`; nothing is copied into the repository. A package that is not installed is
left out, and every text says where it comes from, so a result names what it was measured on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from benchmark.environment import ROOT
from benchmark.serving.conversation import INTRODUCTION, tool_schemas

MIN_CHARACTERS = 12_000  # 2048 tokens of dense code are about 6,000


@dataclass(frozen=True, slots=True)
class Text:
    name: str
    kind: str  # doc, code or chat
    content: str


Part = tuple[str, str]  # name, content

DOCS: tuple[tuple[str, ...], ...] = (
    ("srt/ARCHITECTURE.md", "kernels/README.md", "CONTRIBUTING.md", "CHANGELOG.md"),
    ("torch:README",),
    ("openai:README",),
    ("tqdm:README",),
    ("transformers:README", "safetensors:README"),
    ("aiohttp:README", "hypothesis:README", "pytest:README", "starlette:README"),
)
CODE: tuple[tuple[str, ...], ...] = (
    ("srt/sched/scheduler.py", "srt/sched/admission.py"),
    ("kernels/cpu/attention.cpp", "kernels/cpu/quant.cpp", "kernels/cpu/linear.cpp"),
    ("starlette:starlette/routing.py",),
    ("jinja2:jinja2/lexer.py", "jinja2:jinja2/parser.py"),
    ("networkx:networkx/algorithms/dag.py",),
    ("aiohttp:aiohttp/client_reqrep.py",),
)
CHATS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "explain how a prefix hit is found and what it costs",
        ("srt/cache/radix.py", "srt/cache/replay.py", "srt/cache/manager.py"),
    ),
    (
        "find out why a cancelled stream leaks a task",
        ("aiohttp:aiohttp/streams.py", "srt/tokenizer/frontend.py", "srt/net/ipc.py"),
    ),
    (
        "port the markdown table writer to our reports",
        ("tqdm:tqdm/std.py", "python/treadle/bench/ratios.py", "benchmark/kernels/bench_linear.py"),
    ),
    (
        "add a test for templates with nested loops",
        ("jinja2:jinja2/runtime.py", "srt/tokenizer/chat_sandbox.py", "srt/tokenizer/chat.py"),
    ),
)


def load_texts() -> list[Text]:
    """All texts that this machine can give, kinds in turn, so that a few are already mixed."""
    docs = [_joined(parts, "doc") for parts in DOCS]
    code = [_joined(parts, "code") for parts in CODE]
    chats = [_chat(task, parts) for task, parts in CHATS]
    columns = max(len(docs), len(code), len(chats))
    mixed = [group[i] for i in range(columns) for group in (docs, code, chats) if i < len(group)]
    return [text for text in mixed if text and len(text.content) >= MIN_CHARACTERS]


def _joined(sources: Sequence[str], kind: str) -> Text | None:
    parts = [part for part in map(_read, sources) if part]
    if not parts:
        return None
    name = " + ".join(part[0] for part in parts)
    return Text(name, kind, "\n\n".join(part[1] for part in parts))


def _chat(task: str, sources: Sequence[str]) -> Text | None:
    """Tool schemas, then reads of 60 lines of each file in turn with an agent's words between."""
    parts = [part for part in map(_read, sources) if part]
    if not parts:
        return None
    out = [f"{INTRODUCTION}{tool_schemas()}\nUser: {task}.\n"]
    for step in range(12):
        name, content = parts[step % len(parts)]
        lines = content.splitlines()
        first = step // len(parts) * 60
        excerpt = "\n".join(lines[first : first + 60])
        if not excerpt:
            continue
        out.append(
            f"Agent: Step {step + 1}: I read {name} from line {first + 1} on.\n"
            f'Call: read_file {{"path": "{name}", "first_line": {first + 1}}}\n'
            f"Output:\n{excerpt}\n"
        )
    names = ", ".join(name for name, _ in parts)
    return Text(f"chat: {task} ({names})", "chat", "".join(out))


def _read(source: str) -> Part | None:
    """`path` in this repository, `package:path` or `package:README`. None when it is not there."""
    package, _, inside = source.rpartition(":")
    if not package:
        path = ROOT / inside
        return (inside, path.read_text()) if path.is_file() else None
    try:
        version = metadata.version(package)
        reader: Callable[[str, str], str | None] = _readme if inside == "README" else _file
        content = reader(package, inside)
    except metadata.PackageNotFoundError:
        return None
    return (f"{inside} of {package} {version}", content) if content else None


def _readme(package: str, inside: str) -> str | None:
    text = metadata.metadata(package).json.get("description")
    return text if isinstance(text, str) else None


def _file(package: str, inside: str) -> str | None:
    for entry in metadata.files(package) or []:
        if str(entry) == inside:
            return Path(str(entry.locate())).read_text()
    return None

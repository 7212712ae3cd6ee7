r"""The steps of an agent conversation, as token ids that any server can be given.

    turn 1 - turn 2 - turn 3 - turn 4 - turn 5 - turn 6 - back - again
                           \                                 \
                            fork - fork 2                     edit
    A1 - A2 .. A6, B1 - B2 .. B6    two sessions, taken in turns

A step's prompt is its parent's prompt, the ids that this server generated there, and new tokens.
Prompts have the same length on every server, their generated parts are each server's own. All
sessions of a round begin with the same system prompt, whose first tokens are the round's nonce, so
that rounds share nothing. Texts are this repository's own files.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmark.environment import ROOT, tracked_files

SYSTEM_TOKENS = 1270
TOOL_TOKENS = 300
REPLY_TOKENS = 64
NUM_TURNS = 6
EDIT_BACK_TOKENS = 60

Encode = Callable[[str], list[int]]

TOOLS = (
    ("read_file", "Read lines of a text file.", ("path", "first_line", "last_line")),
    ("write_file", "Create a file or replace all of it.", ("path", "content")),
    ("edit_file", "Replace one exact passage of a file.", ("path", "old_text", "new_text")),
    ("list_folder", "List the entries of a folder with sizes.", ("path", "depth")),
    ("search_text", "Find lines that match a regular expression.", ("pattern", "folder", "limit")),
    ("run_command", "Run a command and return its output.", ("command", "timeout_s")),
    ("fetch_page", "Fetch a page and return its text.", ("url", "max_characters")),
    ("finish", "End the task with a summary for the user.", ("summary",)),
)
INTRODUCTION = (
    "You maintain a code base. Work in small steps: look before you change, change one thing, then "
    "run the tests. Call one tool at a time and wait for its output. Answer in plain words and say "
    "what you did not check. The tools are:\n"
)
FILE_TYPES = (".py", ".md", ".cpp", ".h", ".toml")


@dataclass(frozen=True, slots=True)
class Step:
    """`drop` tokens leave the end of the parent's prompt; `with_reply` keeps what was generated
    there. A step without parent starts from nothing.
    """

    name: str
    parent: str
    with_reply: bool
    drop: int
    tokens: tuple[int, ...]


@dataclass(slots=True)
class History:
    """What one server has been asked in a round, and has answered."""

    prompts: dict[str, list[int]]
    replies: dict[str, list[int]]

    def prompt(self, step: Step) -> list[int]:
        if not step.parent:
            return list(step.tokens)
        before = self.prompts[step.parent]
        reply = self.replies[step.parent] if step.with_reply else []
        return [*before[: len(before) - step.drop], *reply, *step.tokens]

    def note(self, step: Step, prompt: list[int], reply: list[int]) -> None:
        self.prompts[step.name] = prompt
        self.replies[step.name] = reply


class Texts:
    """Token runs of exact length from this repository's files, the same for the same seed."""

    def __init__(self, encode: Encode, prefix: list[int], seed: str) -> None:
        self._encode = encode
        self._prefix = prefix
        self._source = random.Random(seed)
        self._files = _files()

    def fresh(self, num_tokens: int) -> list[int]:
        """A prompt that shares no prefix but BOS with any other."""
        nonce = hashlib.sha256(self._source.randbytes(8)).hexdigest()[:12]
        head = [*self._prefix, *self._encode(f"[{nonce}]\n")]
        return [*head, *self.passage(num_tokens - len(head))]

    def system(self) -> list[int]:
        """`SYSTEM_TOKENS` of instructions and tools; each call has a nonce of its own."""
        nonce = hashlib.sha256(self._source.randbytes(8)).hexdigest()[:12]
        rules = (ROOT / "CONTRIBUTING.md").read_text()
        text = f"[session {nonce}]\n{INTRODUCTION}{tool_schemas()}\nRules of the house:\n{rules}"
        return self._cut([*self._prefix, *self._encode(text)], SYSTEM_TOKENS)

    def user(self, task: str) -> list[int]:
        return self._encode(f"\nUser: {task}\nAgent:")

    def tool_output(self, num_tokens: int = TOOL_TOKENS) -> list[int]:
        """The output of a call of read_file, up to the agent's next words."""
        path, lines = self._pick()
        head = self._encode(f"\nOutput of read_file({path}):\n")
        tail = self._encode("\nAgent:")
        body = self._cut(self._encode(lines), num_tokens - len(head) - len(tail))
        return [*head, *body, *tail]

    def passage(self, num_tokens: int) -> list[int]:
        ids: list[int] = []
        while len(ids) < num_tokens:
            ids += self._encode(self._pick()[1])
        return ids[:num_tokens]

    def _pick(self) -> tuple[str, str]:
        """A file's name and at least 300 tokens of its lines."""
        path = self._source.choice(self._files)
        lines = path.read_text().splitlines(keepends=True)
        start = self._source.randrange(max(1, len(lines) - 80))
        return str(path.relative_to(ROOT)), "".join(lines[start : start + 80])

    def _cut(self, ids: list[int], num_tokens: int) -> list[int]:
        return [*ids, *self.passage(max(0, num_tokens - len(ids)))][:num_tokens]


def steps(texts: Texts) -> list[Step]:
    """One round of the conversation."""
    system = texts.system()
    plan = _session("turn ", system, "find out why a test of the cache fails", texts)
    fork = Step("fork at end of turn 3", "turn 3", True, 0, tuple(texts.tool_output()))
    plan.append(fork)
    plan.append(Step("next turn on the fork", fork.name, True, 0, tuple(texts.tool_output())))
    back = Step("back to first branch", f"turn {NUM_TURNS}", True, 0, tuple(texts.tool_output()))
    plan.append(back)
    plan.append(Step("same prompt again", back.name, False, 0, ()))
    change = tuple(texts.user("stop here"))
    plan.append(Step("edit 60 before the end", back.name, False, EDIT_BACK_TOKENS, change))
    first = _session("A", system, "describe the scheduler", texts)
    second = _session("B", system, "write a test of the pages", texts)
    for one, other in zip(first, second, strict=True):
        plan += [one, other]
    return plan


def tool_schemas() -> str:
    described = []
    for name, text, fields in TOOLS:
        properties = {field: {"type": "string", "description": _words(field)} for field in fields}
        parameters = {"type": "object", "properties": properties, "required": [fields[0]]}
        described.append({"name": name, "description": text, "parameters": parameters})
    return json.dumps(described, indent=1)


def _session(prefix: str, system: list[int], task: str, texts: Texts) -> list[Step]:
    names = [f"{prefix}{turn}" for turn in range(1, NUM_TURNS + 1)]
    plan = [Step(names[0], "", False, 0, (*system, *texts.user(task)))]
    for before, name in zip(names, names[1:], strict=False):
        plan.append(Step(name, before, True, 0, tuple(texts.tool_output())))
    return plan


def _words(field: str) -> str:
    return f"the {field.replace('_', ' ')} that the tool works on"


def _files() -> list[Path]:
    """Files of this repository that are long enough for a passage."""
    found = [path for path in tracked_files() if path.suffix in FILE_TYPES]
    return [path for path in found if path.is_file() and path.stat().st_size > 3000]

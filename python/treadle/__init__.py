"""treadle: an LLM serving runtime for agent loops, and the language for programs that use it.

    import treadle as tr

Importing it does not import torch; names of the language are resolved when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .lang.names import *  # noqa: F403

__version__ = "0.1.0"

_NAMES = (
    "Answer", "AnswerRequest", "Backend", "BrokenAnswer", "BudgetExceeded", "CallEvent",
    "Cancelled", "ChatPrompt", "ChoiceScore", "ChoicesMethod", "ClientError", "Engine",
    "EngineFailed", "Expr", "Forks", "OpenAI", "Program", "ProgramError", "ReasoningEvent",
    "Refused", "ResultEvent", "Runtime", "RuntimeEndpoint", "Sampling", "ScoreRequest", "Scores",
    "Session", "State", "TextEvent", "TextPrompt", "Tool", "ToolCall", "ToolResult", "Tools",
    "Trace", "TurnEvent", "Unreachable", "Unsupported", "agent", "assistant", "assistant_begin",
    "assistant_end", "flush_cache", "function", "gen", "gen_int", "gen_string",
    "get_server_info", "greedy_token_selection", "history", "image", "select", "separate_reasoning",
    "set_default_backend", "system", "system_begin", "system_end", "token_length_normalized",
    "tool", "tool_result", "unconditional_likelihood_normalized", "user", "user_begin",
    "user_end", "video",
)  # fmt: skip

__all__ = ["__version__", *_NAMES]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return vars(import_module(".lang.names", __name__))[name]

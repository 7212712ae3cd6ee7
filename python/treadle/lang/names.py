"""Every public name of the language, in one place: what `import treadle as tr` resolves."""

from __future__ import annotations

from ..client.errors import (
    BrokenAnswer,
    BudgetExceeded,
    Cancelled,
    ClientError,
    EngineFailed,
    ProgramError,
    Refused,
    Unreachable,
    Unsupported,
)
from .backend import Answer, AnswerRequest, Backend, ScoreRequest, Scores, Session
from .choices import (
    ChoiceScore,
    ChoicesMethod,
    greedy_token_selection,
    token_length_normalized,
    unconditional_likelihood_normalized,
)
from .defaults import flush_cache, get_server_info, set_default_backend
from .engine import Engine, Runtime
from .events import CallEvent, ReasoningEvent, ResultEvent, TextEvent, TurnEvent
from .forks import Forks
from .ir import Expr
from .openai import OpenAI
from .program import Program, function
from .prompt import ChatPrompt, TextPrompt
from .remote import RuntimeEndpoint
from .sampling import Sampling
from .state import State
from .tools import Tool, ToolCall, ToolResult, Tools, tool
from .trace import Trace
from .words import (
    agent,
    assistant,
    assistant_begin,
    assistant_end,
    gen,
    gen_int,
    gen_string,
    history,
    image,
    select,
    separate_reasoning,
    system,
    system_begin,
    system_end,
    tool_result,
    user,
    user_begin,
    user_end,
    video,
)

__all__ = [
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
]  # fmt: skip

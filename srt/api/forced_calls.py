"""`tool_choice` required and named: the request's sampling with the grammar that forces calls."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ..errors import BadRequest
from ..grammar.compile import check
from ..tokenizer.encode import Tokenizer
from .chat_output import OutputRules
from .sampling import Sampling
from .tool_grammar import tool_grammar
from .tool_use import ToolUse


async def force_calls(
    sampling: Sampling, rules: OutputRules, tools: ToolUse, tokenizer: Tokenizer
) -> Sampling:
    """`sampling` itself unless calls are forced; `rules` are those after the prompt. Raises
    BadRequest for a schema that cannot be a grammar, and when the answer has another grammar.
    """
    if not tools.is_forced:
        return sampling
    if sampling.params.grammar is not None:
        raise BadRequest(
            "tool_choice forces a call, so the answer cannot have another form too",
            param="tool_choice",
        )
    special = {tokenizer.token_text(token_id): token_id for token_id in rules.shown_ids}
    try:
        grammar = tool_grammar(rules, tools, special)
        await asyncio.to_thread(check, grammar)
    except BadRequest as error:
        raise BadRequest(f"tools: {error.message}", param="tools") from None
    except RecursionError:
        raise BadRequest("tools is nested too deeply", param="tools") from None
    return replace(sampling, params=replace(sampling.params, grammar=grammar))

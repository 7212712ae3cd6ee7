"""`tool_choice` required and named: the request's sampling with the grammar that forces calls."""

from __future__ import annotations

from ..errors import BadRequest
from .chat_output import OutputRules
from .grammar import constrained
from .sampling import Sampling
from .service import Service
from .tool_grammar import tool_grammar
from .tool_use import ToolUse


async def force_calls(
    sampling: Sampling, rules: OutputRules, tools: ToolUse, service: Service
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
    tokenizer = service.tokenizer
    special = {tokenizer.token_text(token_id): token_id for token_id in rules.shown_ids}
    try:
        forced = constrained(sampling, tool_grammar(rules, tools, special))
        await service.grammars.check(forced)
    except BadRequest as error:
        raise BadRequest(f"tools: {error.message}", param="tools") from None
    except RecursionError:
        raise BadRequest("tools is nested too deeply", param="tools") from None
    return forced

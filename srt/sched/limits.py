"""What the scheduler refuses: settings under which nothing could run, and requests that cannot.

The tokenizer process refuses most bad requests earlier and in the words of its API; these checks
are for what only the scheduler knows, and keep a request that can never run out of the queue.
"""

from __future__ import annotations

from ..cache.manager import CacheFacts, CacheManager
from ..config import SchedSection
from ..errors import BadRequest, ConfigError, TooLong
from ..messages import GenerateRequest
from .policy import POLICIES


def check_settings(sched: SchedSection, cache: CacheManager) -> None:
    """Raises: ConfigError naming the setting, its value and the limit."""
    facts = cache.facts
    if sched.policy not in POLICIES:
        raise ConfigError(f"--schedule-policy {sched.policy!r}: must be one of {tuple(POLICIES)}")
    if sched.conservativeness <= 0:
        raise ConfigError(f"--schedule-conservativeness {sched.conservativeness}: must be above 0")
    if facts.max_running < 1 or facts.num_pages < 3:
        raise ConfigError(f"{facts.num_slots} slots and {facts.num_pages} pages are too few")
    # Decode rows of all other requests come first; what is left must hold a page of prompt (T37).
    need = facts.max_running - 1 + facts.page_size
    if sched.chunk_tokens < need:
        raise ConfigError(
            f"--chunked-prefill-size {sched.chunk_tokens}: must be at least {need}, a row for each "
            f"of {facts.max_running - 1} other requests and a page of {facts.page_size}"
        )
    if facts.prefix_cache:
        cache.rule.check_chunk(sched.chunk_tokens, facts.page_size)


def check_request(message: GenerateRequest, context_len: int, facts: CacheFacts) -> None:
    """Raises: BadRequest for a prompt that cannot be run here, whatever else is running (T45)."""
    prompt, output = len(message.prompt_ids), message.sampling.max_new_tokens
    if not prompt:
        raise BadRequest("the prompt has no tokens", param="prompt")
    start = message.logprob_start
    if start is not None and not 0 <= start <= prompt:
        raise BadRequest(
            f"logprob_start {start} must be 0 to {prompt}, the prompt's length",
            param="logprob_start_len",
        )
    if output < 0:
        raise BadRequest(f"max_new_tokens {output} must be 0 or more", param="max_new_tokens")
    if prompt + min(output, 1) > context_len:
        raise TooLong(
            f"the prompt of {prompt} tokens leaves no room for output in the context length of "
            f"{context_len} tokens",
            param="prompt",
        )
    most = max_known(message, context_len) - 1  # the last sampled token is never run
    rows = max(prompt, min(prompt + facts.page_size, most))
    pages, limit = -(-rows // facts.page_size), facts.num_pages - 1
    if pages > limit:
        raise BadRequest(
            f"the prompt of {prompt} tokens needs {pages} pages of {facts.page_size} tokens; the "
            f"KV pool has {limit}",
            param="prompt",
        )


def max_known(message: GenerateRequest, context_len: int) -> int:
    """Largest number of tokens, prompt included, that the request may come to have."""
    return min(len(message.prompt_ids) + message.sampling.max_new_tokens, context_len)

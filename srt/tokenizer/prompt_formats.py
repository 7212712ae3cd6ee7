"""Which format a model's conversations are rendered in. A family whose format is code is one file
and one line here; the others have templates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..deepseek_v41_config import ARCHITECTURE as DEEPSEEK_V41
from .chat import pick_template
from .deepseek_v41_format import DeepseekV41Format
from .encode import Tokenizer
from .prompts import PromptFormat

IN_CODE: Mapping[str, Callable[[], PromptFormat]] = {DEEPSEEK_V41: DeepseekV41Format}


def pick_format(architecture: str, tokenizer: Tokenizer, flag: str) -> PromptFormat | None:
    """The model's own format in code where it has one, unless `--chat-template` asks for another;
    else as `pick_template` says. Raises: ConfigError, CheckpointError."""
    if architecture in IN_CODE and not flag:
        return IN_CODE[architecture]()
    return pick_template(tokenizer, flag)

"""A family with a format in code is rendered by it, unless a template is asked for."""

from __future__ import annotations

from test.v41 import CHECKPOINTS
from treadle.srt.deepseek_v41_config import ARCHITECTURE
from treadle.srt.tokenizer.chat import ChatTemplate
from treadle.srt.tokenizer.deepseek_v41_format import DeepseekV41Format
from treadle.srt.tokenizer.encode import Tokenizer
from treadle.srt.tokenizer.prompt_formats import pick_format

NANO = CHECKPOINTS / "v41-nano"


def test_a_family_with_a_format_in_code_is_rendered_by_it():
    assert isinstance(pick_format(ARCHITECTURE, Tokenizer.load(NANO), ""), DeepseekV41Format)


def test_a_template_that_is_asked_for_goes_first():
    picked = pick_format(ARCHITECTURE, Tokenizer.load(NANO), "chatml")
    assert isinstance(picked, ChatTemplate)


def test_other_families_have_templates_or_none():
    assert pick_format("LlamaForCausalLM", Tokenizer.load(NANO), "") is None
    assert isinstance(pick_format("LlamaForCausalLM", Tokenizer.load(NANO), "chatml"), ChatTemplate)

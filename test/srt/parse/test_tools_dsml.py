"""DeepSeek's markup: what is passed on when."""

from __future__ import annotations

from treadle.srt.parse.events import Content, ToolArguments, ToolStart
from treadle.srt.parse.tools_dsml import DsmlParser

HEAD = '<｜DSML｜ calls>\n<｜DSML｜ invoke name="f">\n<｜DSML｜ parameter name="a" string="{}">'


def test_text_streams_and_other_values_wait_for_their_end():
    parser = DsmlParser({"f"})
    events = parser.push(HEAD.format("true") + 'say "')
    assert events[0] == ToolStart(0, "f")
    assert "".join(e.text for e in events[1:] if isinstance(e, ToolArguments)) == '{"a": "say \\"'
    parser = DsmlParser({"f"})
    events = parser.push(HEAD.format("false") + "[1, ")
    assert events[1:] == [ToolArguments(0, '{"a": ')]
    assert parser.push("2]</｜DSML｜ parameter>") == [ToolArguments(0, "[1, 2]")]


def test_line_breaks_are_content_unless_a_block_follows():
    parser = DsmlParser({"f"})
    assert parser.push("a\n\n") == [Content("a")]
    assert parser.push("b") == [Content("\n\nb")]
    assert parser.push("\n\n<｜DSML｜ calls>\n") == []

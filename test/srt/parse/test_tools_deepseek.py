"""DeepSeek's marked calls: what is passed on when."""

from __future__ import annotations

from treadle.srt.parse.events import ToolArguments, ToolStart
from treadle.srt.parse.tools_deepseek import CALL_BEGIN, CALLS_BEGIN, SEPARATOR, DeepSeekParser


def test_both_forms_stream_their_arguments():
    for head in (f"function{SEPARATOR}f\n```json\n", f"f{SEPARATOR}"):
        parser = DeepSeekParser({"f"})
        assert parser.push(CALLS_BEGIN + CALL_BEGIN + head) == []
        events = parser.push('{"a": "b')
        assert events[0] == ToolStart(0, "f")
        assert "".join(e.text for e in events[1:] if isinstance(e, ToolArguments)) == '{"a": "b'

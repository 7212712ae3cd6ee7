"""Outputs in the dialects of models, and what they say: (content, calls) with "f", "g" known."""

from __future__ import annotations

Calls = list[tuple[str, str]]
Row = tuple[str, str, Calls]

F1 = '{"a": 1}'
HERMES: list[Row] = [
    ("no call at all, 1 < 2 and <tool", "no call at all, 1 < 2 and <tool", []),
    (
        'I look.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
        "I look.",
        [("f", F1)],
    ),
    (
        '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n'
        '<tool_call>\n{"name": "g", "arguments": {"q": "Zürich ☕ 日本"}}\n</tool_call>\n',
        "",
        [("f", F1), ("g", '{"q": "Zürich ☕ 日本"}')],
    ),
    (  # braces, quotes, markers and line breaks in strings; numbers to the letter
        '<tool_call>{"name": "f", "arguments": {"s": "}]{\\"\\\\</tool_call>\\n<tool_call>", '
        '"n": 1.50, "big": 12345678901234567890, "e": 1E-7, "x": {"y": [[], {}]}}}</tool_call> ok',
        "ok",
        [
            (
                "f",
                '{"s": "}]{\\"\\\\</tool_call>\\n<tool_call>", "n": 1.50, '
                '"big": 12345678901234567890, "e": 1E-7, "x": {"y": [[], {}]}}',
            )
        ],
    ),
    ('<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', "", [("f", F1)]),
    ('<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [("f", F1)]),
    ('<tool_call>{"name": "f"}</tool_call>', "", [("f", "{}")]),
    ('<tool_call>{"name": "f", "arguments": null}</tool_call>', "", [("f", "{}")]),
    ('<tool_call>{"name": "unknown", "arguments": {}}</tool_call>', "", [("unknown", "{}")]),
    ("use <tool_call> to call", "use <tool_call> to call", []),
    ("<tool_call>\n{bad json}\n</tool_call>", "<tool_call>\n{bad json}\n</tool_call>", []),
    ('<tool_call>{"name": "f", "arg', '<tool_call>{"name": "f", "arg', []),
    ('<tool_call>{"name": "f", "arguments": {"a": [1, ', "", [("f", '{"a": [1, ')]),
    ('<tool_call>{"name": "f", "arguments": {"a": 1}</tool_call>.', ".", [("f", F1)]),
    ('<tool_call>{"name": "f", "arguments": {"a": 1}}\n</tool_ca', "", [("f", F1)]),
    (
        '<tool_call>{"name": "f", "arguments": {"a": 1}}'
        '<tool_call>{"name": "g", "arguments": {}}</tool_call>',
        "",
        [("f", F1), ("g", "{}")],
    ),
    (
        '<tool_call>{"name": "f", "arguments": {"a": 1}}\n{"name": "g"}</tool_call>',
        "",
        [("f", F1), ("g", "{}")],
    ),
    ('<tool_call>{"name": "f", "arguments": {"a": "\\ud83d', "", [("f", '{"a": "\\ud83d')]),
    ('<tool_call>{"name": "\\ud83d", "arguments": {}}', "", [("?", "{}")]),
    ("<tool_call><tool_call>" + '{"name": "f"}', "<tool_call>", [("f", "{}")]),
]
LLAMA3: list[Row] = [
    ("Just text { with a brace.", "Just text { with a brace.", []),
    ('{"name": "f", "parameters": {"a": 1}}', "", [("f", F1)]),
    ('<|python_tag|>{"name": "f", "parameters": {"a": 1}}', "", [("f", F1)]),
    (
        '{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}',
        "",
        [("f", F1), ("g", "{}")],
    ),
    ('{"type": "function", "name": "f", "parameters": {"a": 1}}', "", [("f", F1)]),
    ('{"parameters": {"a": 1}, "name": "f"}', "", [("f", F1)]),
    ('{"city": "Paris"}', '{"city": "Paris"}', []),
    ('{"name": "Bob", "age": 4}', '{"name": "Bob", "age": 4}', []),
    ('{"name": "f"}', '{"name": "f"}', []),
    ('{"name": "Bob", "parameters": {}}', '{"name": "Bob", "parameters": {}}', []),
    ('<|python_tag|>{"name": "Bob", "parameters": {}}', "", [("Bob", "{}")]),
    ("<|python_tag|>print(1)", "<|python_tag|>print(1)", []),
    ('{"name": "f", "parameters": {"a": 1}}; or not', "; or not", [("f", F1)]),
    ('{"name": "f", "parameters": {"a": "x\\"}', "", [("f", '{"a": "x\\"}')]),
    (
        'Sure. <|python_tag|>{"name": "f", "parameters": {"a": 1}}\nDone.',
        "Sure.Done.",
        [("f", F1)],
    ),
]
PYTHONIC: list[Row] = [
    ("a list [1, 2] and [f] and [f](x)", "a list [1, 2] and [f] and [f](x)", []),
    ("[f(a=1)]", "", [("f", F1)]),
    ('[f(a=1, b="x]"), g()]', "", [("f", '{"a": 1, "b": "x]"}'), ("g", "{}")]),
    (
        "Let me see.\n[g(s='it\\'s (a) \"b\"', n=None, t=True, j=false, l=[1, {'k': 2.5}])]",
        "Let me see.",
        [
            (
                "g",
                '{"s": "it\'s (a) \\"b\\"", "n": null, "t": true, "j": false, '
                '"l": [1, {"k": 2.5}]}',
            )
        ],
    ),
    ("<|python_start|>[f(a=1)]<|python_end|>", "", [("f", F1)]),
    ('[f(t="""x"y\n""", e="")]', "", [("f", '{"t": "x\\"y\\n", "e": ""}')]),
    ("[f(a=-1, q='日本')]", "", [("f", '{"a": -1, "q": "日本"}')]),
    ("[f(1)]", "[f(1)]", []),
    ("[f(a=x)]", "[f(a=x)]", []),
    ("[f(a=1e999)]", "[f(a=1e999)]", []),
    ("[f(a=b'x', **c)]", "[f(a=b'x', **c)]", []),
    ("[f(a=(1}]", "[f(a=(1}]", []),
    ("[unknown(a=1)]", "[unknown(a=1)]", []),
    ("[f(a=1), g(b=", " g(b=", [("f", F1)]),
    ("[f(a='\\d')]", "", [("f", '{"a": "\\\\d"}')]),
    ("[f(a=" + "(" * 300 + ")" * 300 + ")]", "[f(a=" + "(" * 300 + ")" * 300 + ")]", []),
]
_V3 = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n{}\n```<｜tool▁call▁end｜>"
_V31 = "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
_BEGIN, _END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_NASTY = '{"t": "```\\n<｜tool▁call▁end｜>}", "n": 1.0}'


def _deepseek(call: str) -> list[Row]:
    def spelled(name: str, arguments: str) -> str:
        return call.replace("{}", name, 1).replace("{}", arguments, 1)

    one = spelled("f", F1)
    return [
        ("text with < and ｜ and <｜tool", "text with < and ｜ and <｜tool", []),
        (f"I look.\n\n{_BEGIN}{one}{_END}", "I look.", [("f", F1)]),
        (f"{_BEGIN}{one}\n{spelled('g', '{}')}{_END}", "", [("f", F1), ("g", "{}")]),
        (f"{_BEGIN}{spelled('f', _NASTY)}{_END} end", "end", [("f", _NASTY)]),
        (f"{_BEGIN}{spelled('unknown', '{}')}{_END}", "", [("unknown", "{}")]),
        (f"{one}", "", [("f", F1)]),
        (f"{_BEGIN}what", f"{_BEGIN}what", []),
        (f"{_BEGIN}{one}<｜tool▁cal", "", [("f", F1)]),
        (f"{_BEGIN}{one.split('1')[0]}1, ", "", [("f", '{"a": 1, ')]),
        (f"{_BEGIN}{one}<｜tool▁call▁begin｜>oops{_END}", "<｜tool▁call▁begin｜>oops", [("f", F1)]),
    ]


DEEPSEEK_V3, DEEPSEEK_V31 = _deepseek(_V3), _deepseek(_V31)
_P = '<｜DSML｜ parameter name="{}" string="{}">{}</｜DSML｜ parameter>'


def _invoke(name: str, *parameters: tuple[str, str, str]) -> str:
    inside = "\n".join(_P.format(*p) for p in parameters)
    return f'<｜DSML｜ invoke name="{name}">\n{inside}\n</｜DSML｜ invoke>'


_A = _invoke("f", ("a", "false", "1"))
_DB, _DE = "<｜DSML｜ calls>\n", "\n</｜DSML｜ calls>"
DSML: list[Row] = [
    ("text, 1 < 2, <｜DSML", "text, 1 < 2, <｜DSML", []),
    (f"I look.\n\n{_DB}{_A}{_DE}", "I look.", [("f", F1)]),
    (f"\n\n\n{_DB}{_A}\n{_invoke('g')}{_DE}dropped", "\n", [("f", F1), ("g", "{}")]),
    (
        _DB
        + _invoke(
            "f",
            ("s", "true", 'a "b"\n\\ </p> 日本 <｜DSML｜'),
            ("l", "false", '[1.50, {"x": null}]'),
            ("e", "true", ""),
        )
        + _DE,
        "",
        [("f", '{"s": "a \\"b\\"\\n\\\\ </p> 日本 <｜DSML｜", "l": [1.50, {"x": null}], "e": ""}')],
    ),
    (f"{_DB}{_invoke('f', ('a', 'false', 'not json'))}{_DE}", "", [("f", '{"a": "not json"}')]),
    (f"{_DB}{_invoke('f', ('a', 'false', 'NaN'))}{_DE}", "", [("f", '{"a": "NaN"}')]),
    (f"{_DB}{_invoke('ns::f', ('a', 'false', ' 1 '))}{_DE}", "", [("ns::f", F1)]),
    ((_DB + _A + _DE).replace("｜DSML｜ ", "｜DSML｜"), "", [("f", F1)]),
    ((_DB + _A + _DE).replace("｜ calls", "｜tool_calls"), "", [("f", F1)]),
    ((_DB + _A + _DE).replace("｜ calls", "｜function_calls"), "", [("f", F1)]),
    ((_DB + _A + _DE).replace(' string="false"', ""), "", [("f", F1)]),
    (f"{_DB}nothing", f"{_DB}nothing", []),
    (f"{_DB}{_A.split('1<')[0]}12", "", [("f", '{"a": 12')]),
    (f"{_DB}{_A.replace('false', 'true').split('1<')[0]}12</｜DS", "", [("f", '{"a": "12')]),
    (f"{_DB}{_A[: -len(' invoke>')]}", "", [("f", '{"a": 1')]),
    (_DB + _A.replace("\n</｜DSML｜ invoke>", "") + _DE, "", [("f", F1)]),
    (f"{_DB}{_A}\n<｜DSML｜ inv", "", [("f", F1)]),
    (f"{_DB}{_A}\nand so on", "\nand so on", [("f", F1)]),
    ("<｜DSML｜ calls>\n<｜DSML｜ invoke nam", "<｜DSML｜ calls>\n<｜DSML｜ invoke nam", []),
]
OUTPUTS: dict[str, list[Row]] = {
    "hermes": HERMES,
    "llama3": LLAMA3,
    "pythonic": PYTHONIC,
    "deepseekv3": DEEPSEEK_V3,
    "deepseekv31": DEEPSEEK_V31,
    "deepseekv41": DSML,
}

"""Calls that make gigabytes, or hours, of a short template."""

from __future__ import annotations

import time

import jinja2
import pytest

from treadle.srt.tokenizer.chat_sandbox import BoundedTemplate


def render(source: str, **values: object) -> str:
    return BoundedTemplate(source, filters={}, functions={}).render(values)


@pytest.mark.parametrize(
    "source",
    [
        "{{ '%999999999d' % 1 }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '%0999999999d'|format(5) }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ '{:{}}'.format(1, 999999999) }}",
        "{{ '{a:{b[0]}}'.format(a=1, b=[999999999]) }}",
        "{{ 'x'.center(10**9) }}",
        "{{ 'x'.ljust(width=10**9) if false else 'x'.rjust(10**9) }}",
        "{{ '5'.zfill(10**9) }}",
        "{{ '\\t'.expandtabs(10**9) }}",
        "{{ 'x'|center(999999999) }}",
        "{{ 'a\\nb'|indent(999999999) }}",
        "{{ [[1]]|tojson(indent=999999999) }}",
        "{{ [1]|batch(99999999, 'x')|list|length }}",
        "{{ [1]|slice(99999999)|list|length }}",
        "{{ ('a' * 1000000).replace('a', 'b' * 1000) }}",
        "{{ ('a' * 1000000)|replace('a', 'b' * 1000) }}",
        "{{ ''.join(['x' * 1000000] * 1000) }}",
        "{{ range(99999)|map('string')|join('x' * 100000) }}",
        "{{ 'a'.translate({97: 'b' * 1000}) }}",
        "{{ [1] * 9999999 }}",
    ],
)
def test_one_call_cannot_make_much_of_little(source: str):
    start = time.thread_time()
    with pytest.raises(jinja2.TemplateRuntimeError):
        render(source)
    assert time.thread_time() - start < 1.0


@pytest.mark.parametrize("name", ["wordwrap", "urlize", "striptags"])
def test_filters_that_are_slow_on_long_texts_are_not_there(name: str):
    with pytest.raises(jinja2.TemplateSyntaxError, match=name):
        render("{{ 'x'|" + name + " }}")


def test_what_templates_use_is_as_before():
    source = (
        "{{ 'a-b'.replace('-', '+') }} {{ 'a-b'|replace('-', '') }} {{ ['x', 1]|join(', ') }} "
        "{{ items|join('/', attribute='n') }} {{ ' s '|trim }} {{ 'a b'.split(' ')|join }} "
        "{{ '%s=%d' % ('k', 3) }} {{ '%s!'|format('hi') }} {{ '{}:{:>3}'.format('a', 7) }} "
        "{{ '-'.join(['p', 'q']) }} {{ {'k': 1}|tojson }} {{ 'ab'|indent(2, true) }} "
        "{{ 'x'.center(3) }}"
    )
    text = render(source, items=[{"n": 1}, {"n": 2}])
    assert text == ('a+b ab x, 1 1/2 s ab k=3 hi! a:  7 p-q {"k": 1}   ab  x ')

"""Templates that would run for ever, fill the memory or reach out of their sandbox."""

from __future__ import annotations

import time

import jinja2
import pytest

from treadle.srt.tokenizer import chat_sandbox
from treadle.srt.tokenizer.chat_sandbox import BoundedTemplate


def render(source: str, **values: object) -> str:
    return BoundedTemplate(source, filters={}, functions={}).render(values)


@pytest.fixture
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_sandbox, "TIME_LIMIT_S", 0.05)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
        "{% for i in range(9999) %}{% for j in range(9999) %}text{% endfor %}{% endfor %}",
        "{% set x %}{% for i in range(9999) %}{% for j in range(9999) %}.{% endfor %}{% endfor %}"
        "{% endset %}",
        "{% macro a(n) %}{% if n %}{{ a(n-1) }}{{ a(n-1) }}{% endif %}{% endmacro %}{{ a(50) }}",
        "{% for x in [1, 1] recursive %}{% if loop.depth < 50 %}{{ loop([1, 1]) }}{% endif %}"
        "{% endfor %}",
    ],
    ids=["silent loops", "loud loops", "captured loops", "macros", "recursive loops"],
)
def test_runaway_template_is_stopped(source: str, short_limit: None):
    start = time.thread_time()
    with pytest.raises(jinja2.TemplateRuntimeError, match="longer than"):
        render(source)
    assert time.thread_time() - start < 1.0


def test_template_works_again_after_it_was_stopped(short_limit: None):
    loops = "{% for i in range(n) %}{% for j in range(n) %}.{% endfor %}{% endfor %}"
    template = BoundedTemplate(loops, filters={}, functions={})
    with pytest.raises(jinja2.TemplateRuntimeError):
        template.render({"n": 9999})
    assert template.render({"n": 2}) == "...."


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10 ** 12 }}",
        "{{ 10 ** 12 * [1] }}",
        "{% set n = namespace(s='a') %}"
        "{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
        "{% set n = namespace(s='a') %}"
        "{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}",
        "{% for i in range(1000) %}{{ 'a' * 1000 }}{% endfor %}",
        "{{ 2 ** 99999999 }}",
        "{% set n = namespace(s=9) %}{% for i in range(60) %}{% set n.s = n.s * n.s %}{% endfor %}",
    ],
)
def test_large_results_are_refused(source: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chat_sandbox, "TEXT_LIMIT", 100_000)
    with pytest.raises(jinja2.TemplateRuntimeError, match="it makes a (text|number)"):
        render(source)


@pytest.mark.parametrize(
    "source",
    ["{{ ''.__class__.__mro__ }}", "{{ box.append(1) }}", "{{ box.__init__.__globals__ }}"],
)
def test_template_cannot_reach_out_or_change_its_input(source: str):
    with pytest.raises(jinja2.exceptions.SecurityError):
        render(source, box=[])


def test_endless_recursion_ends():
    with pytest.raises(RecursionError):
        render("{% block b %}{{ self.b() }}{% endblock %}")


def test_bounds_change_no_output():
    source = """{% macro m(x) %}<{{ x }}>{% endmacro %}
    {% for x in items if x %}{{ loop.index ~ ':' ~ m(x) + '.' * 2 }}{% else %}none{% endfor %}
{% call(y) each() %}{% endcall %}{% generation %}[{{ 2 ** 3 * 2 + 1 }}]{% endgeneration %}
{% for x in items %}{% if loop.last %}{% break %}{% endif %}{{ x }},{% endfor %}"""
    text = BoundedTemplate(source, filters={}, functions={"each": lambda caller: "called"})
    assert text.render({"items": [1, 0, 3]}) == "1:<1>..2:<3>..called[17]1,0,"


def test_syntax_errors_come_at_once():
    with pytest.raises(jinja2.TemplateSyntaxError):
        BoundedTemplate("{% for %}", filters={}, functions={})

"""The public surface: its names, that they resolve, and that their examples run as they stand."""

from __future__ import annotations

import doctest
import inspect

import pytest

import treadle as tr
from test.treadle.lang.fake_backend import FakeBackend
from treadle.lang import names

PUBLIC = [name for name in tr.__all__ if name != "__version__"]


def test_the_names_of_the_package_are_those_of_the_language():
    assert PUBLIC == names.__all__ == sorted(names.__all__)
    assert {name for name in PUBLIC if name not in vars(names)} == set()


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'gem'"):
        tr.gem  # noqa: B018


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example_that_runs(name: str, backend: FakeBackend):
    value = vars(names)[name]
    found = inspect.getdoc(value) or ""
    assert found and ">>>" in found, f"{name} has no example"
    test = doctest.DocTestParser().get_doctest(found, {"tr": tr}, name, name, 0)
    result = doctest.DocTestRunner().run(test)
    assert result.failed == 0, f"{name}: see the output above"

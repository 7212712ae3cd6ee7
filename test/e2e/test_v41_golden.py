"""DeepSeek-V4.1 against an independent implementation, through a server: HTTP in, logprobs out.

One test per file of expected outputs and per form of the caches: `exact` is float32 without any
quantiser, where a wrong floor, window, trim or cache rule is far outside the allowance; `packed` is
what is served by default. Here are the files that a server with default rules answers; one server
per checkpoint and form, and a scope of the prefix cache per file.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from test.e2e.golden import Case, OneServer, cases, check_case

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def servers() -> Iterator[OneServer]:
    one = OneServer()
    yield one
    one.close()


@pytest.mark.parametrize("case", cases(is_common=True))
def test_served_answer_is_the_expected_one(servers: OneServer, case: Case) -> None:
    check_case(servers.of(case.setting), case)

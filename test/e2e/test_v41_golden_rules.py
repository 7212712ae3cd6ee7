"""DeepSeek-V4.1 against an independent implementation, through a server: HTTP in, logprobs out.

One test per file of expected outputs and per form of the caches: `exact` is float32 without any
quantiser, where a wrong floor, window, trim or cache rule is far outside the allowance; `packed` is
what is served by default. Here are the files of other rules: short hits replayed, the cut layer's
window not clipped, a trim per chunk. The flags follow from the file's name.
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


@pytest.mark.parametrize("case", cases(is_common=False))
def test_served_answer_is_the_expected_one_under_other_rules(
    servers: OneServer, case: Case
) -> None:
    check_case(servers.of(case.setting), case)

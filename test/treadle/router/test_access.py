"""Keys of users and operators; keys for replicas pass through."""

from __future__ import annotations

import pytest

from test.treadle.router.fake_replica import answer
from test.treadle.router.harness import routing
from treadle.router.access import Access
from treadle.srt.errors import Forbidden, Unauthorized

USER, ADMIN = {b"authorization": b"Bearer u"}, {b"x-api-key": b"a"}


@pytest.mark.parametrize(
    ("access", "headers", "is_control", "error"),
    [
        (Access(), {}, True, None),
        (Access("u"), {}, False, Unauthorized),
        (Access("u"), USER, False, None),
        (Access("u"), USER, True, None),
        (Access("u", "a"), USER, True, Forbidden),
        (Access("u", "a"), ADMIN, True, None),
        (Access("u", "a"), ADMIN, False, None),
        (Access("", "a"), {}, False, None),
        (Access("", "a"), {}, True, Unauthorized),
        (Access("u"), {b"authorization": b"Basic u"}, False, Unauthorized),
    ],
)
def test_who_may_what(access, headers, is_control, error):
    if error is None:
        access.check("/workers", headers, is_control=is_control)
    else:
        with pytest.raises(error):
            access.check("/workers", headers, is_control=is_control)
    access.check("/health", {}, is_control=False)


async def test_a_router_with_keys_checks_them_and_passes_them_on():
    async with routing(
        answer(), net={"api_key": "u"}, watch={"admin_api_key": "a", "prometheus_port": -1}
    ) as bench:
        assert (await bench.post()).status_code == 401
        assert (await bench.post(authorization="Bearer u")).status_code == 200
        assert bench.replicas[0].seen[0].headers["authorization"] == "Bearer u"
        user, admin = ({"authorization": f"Bearer {key}"} for key in "ua")
        assert (await bench.http.get("/workers", headers=user)).status_code == 403
        assert (await bench.http.get("/workers", headers=admin)).status_code == 200
        assert (await bench.http.post("/flush_cache", headers=user)).status_code == 403
        assert (await bench.http.get("/metrics")).status_code == 200


async def test_a_router_without_keys_lets_the_replica_check():
    async with routing(answer(401)) as bench:
        assert (await bench.post(x_api_key="theirs")).status_code == 401
        assert bench.replicas[0].seen[0].headers["x-api-key"] == "theirs"

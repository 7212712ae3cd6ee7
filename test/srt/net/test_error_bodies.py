"""Errors in the dialects of their paths."""

from __future__ import annotations

import pytest

from treadle.srt import errors
from treadle.srt.net.error_bodies import body_for, error_body, error_headers, is_anthropic


def test_nested_and_flat_keys_say_the_same():
    body = error_body(errors.BadRequest("m", param="p", code="c"))
    assert body.pop("object") == "error"
    assert body.pop("error") == body == {
        "message": "m", "type": "BadRequestError", "param": "p", "code": "c",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "is_theirs"),
    [("/v1/messages", True), ("/v1/messages/count_tokens", True), ("/v1/messagesX", False)],
)
def test_paths_of_anthropic_have_its_form(path: str, is_theirs: bool):
    assert is_anthropic(path) == is_theirs
    body = body_for(errors.Overloaded("full"), path)
    assert (body.get("type") == "error") == is_theirs
    if is_theirs:
        assert body["error"] == {"type": "overloaded_error", "message": "full"}


def test_names_of_processes_stay_inside():
    body = body_for(errors.WorkerLost("worker0 was killed"), "/v1/messages")
    assert "worker0" not in str(body)


def test_headers_say_whether_to_come_again():
    assert error_headers(errors.NotAdmitted("m")) == {"retry-after": "1", "x-not-admitted": "1"}
    assert error_headers(errors.WorkerLost("m")) == {"retry-after": "1", "x-not-admitted": "1"}
    assert error_headers(errors.Overloaded("m")) == {"retry-after": "1"}
    assert error_headers(errors.BadRequest("m")) == {}
    assert error_headers(errors.Unauthorized("m")) == {"www-authenticate": "Bearer"}

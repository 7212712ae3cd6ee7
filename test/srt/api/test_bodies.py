"""Bodies of errors say the same nested and flat."""

from __future__ import annotations

import orjson
import pytest

from treadle.srt import errors
from treadle.srt.api.bodies import error_event, error_response
from treadle.srt.net.error_bodies import error_body


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.BadRequest("m", param="p", code="c"), 400),
        (errors.TooLong("m", param="p"), 400),
        (errors.NotFound("m"), 404),
        (errors.TooLarge("m"), 413),
        (errors.NotSupported("m"), 501),
        (errors.Overloaded("m"), 503),
        (errors.WorkerLost("m"), 503),
        (errors.TreadleError("m"), 500),
    ],
)
def test_nested_and_flat_keys_say_the_same(error: errors.TreadleError, status: int):
    response = error_response(error, "/generate")
    assert response.status_code == status
    body = orjson.loads(response.body)
    assert body.pop("object") == "error"
    nested = body.pop("error")
    assert nested == body
    assert set(nested) == {"message", "type", "param", "code"}
    assert ("retry-after" in response.headers) == (status == 503)
    assert orjson.loads(error_event(error))["error"] == nested


def test_unauthorized_has_the_word_that_old_scripts_look_for():
    body = error_body(errors.Unauthorized("m"))
    assert body["error"] == "Unauthorized"
    assert body["message"] == "m"

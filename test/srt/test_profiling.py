"""The message that starts and stops a profile."""

from __future__ import annotations

from treadle.srt.net.wire import decode, encode
from treadle.srt.profiling import Profile, ProfileOptions


def test_start_and_stop_travel():
    for message in (Profile(1, ProfileOptions("/d", "n", 3, True, False)), Profile(2, None)):
        assert decode([bytes(frame) for frame in encode(message)]) == message

"""JSON as prompts show it and models write it: one line, letters of any script as they are."""

from __future__ import annotations

import json


def plain_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)

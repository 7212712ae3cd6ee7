"""JSON extraction: the frame is written by the program, each value is selected from what the text
offers, so the result is valid whatever the model is like.
"""

from __future__ import annotations

import json
import re

import treadle as tr
from treadle.lang.examples.command import show

NOTES = """Here are my notes:

- castle-856 -> Nina Zinc
- canyon_tulip -> Felix Opal
- shadow -> 9b851b
- lunar_lichen -> b0c10b80"""


@tr.function
def extract(s: tr.State, notes: str, keys: list[str]) -> dict[str, str]:
    values = re.findall(r"-> (.*)", notes)
    forks = s.fork(len(keys))
    for key, fork in zip(keys, forks, strict=True):
        fork += tr.user(f"{notes}\n\nWhat is the value of {key}?")
        fork += tr.assistant(tr.select("value", values))
    text = json.dumps({key: fork["value"] for key, fork in zip(keys, forks, strict=True)})
    return dict(json.loads(text))


def main() -> dict[str, str]:
    found: dict[str, str] = extract.run(NOTES, ["shadow", "castle-856"]).ret_value
    return found


if __name__ == "__main__":
    show(main)

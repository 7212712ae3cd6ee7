from __future__ import annotations

import json
from pathlib import Path

from treadle.bench.environment import write_result


def test_numbers_of_a_list_are_on_one_line_and_all_else_is_indented(tmp_path: Path):
    path = tmp_path / "folder" / "result.json"
    content = {"kl": [1.5e-7, -2.0, 3], "text": "[1,  2]", "rows": [{"a": [1]}], "none": []}
    write_result(path, content)
    assert json.loads(path.read_text()) == content
    assert path.read_text().splitlines()[1] == '  "kl": [ 1.5e-7, -2.0, 3 ],'
    assert len(path.read_text().splitlines()) == 10

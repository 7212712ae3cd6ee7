"""Requests that schemathesis makes from /openapi.json, against a whole server on a tiny model.

None may be answered by a 500 or by what the document does not say, and none may hang. The default
is small; `--fuzz-requests 3000` adds the systematic phase and takes minutes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from test.e2e.conftest import StartServer
from test.tiny import tiny_gemma3

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
)
# 501 and 503 are documented answers of ours; nothing else above 499 is.
CONFIG = '[checks.not_a_server_error]\nexpected-statuses = ["2xx", "4xx", 501, 503]\n'
SMALL = 200
HANG_S = 60


def run(url: str, folder: Path, num_requests: int) -> subprocess.CompletedProcess[str]:
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG)
    phases = "examples,fuzzing" if num_requests <= SMALL else "examples,coverage,fuzzing"
    few = ["--exclude-tag", "Not in this build"] if num_requests <= SMALL else []
    return subprocess.run(
        [
            sys.executable, "-m", "schemathesis.cli", "--config-file", str(config),
            "run", f"{url}/openapi.json", "--checks", ",".join(CHECKS), "--phases", phases, *few,
            "--max-examples", str(max(5, num_requests // 50)), "--seed", "1",
            "--request-timeout", str(HANG_S), "--generation-database", "none",
            "--continue-on-failure", "--warnings", "off", "--no-color",
        ],
        cwd=folder, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.timeout(3600)
def test_no_500_no_hang_no_undocumented_status(
    serve: StartServer, tmp_path: Path, pytestconfig: pytest.Config
):
    num_requests: int = pytestconfig.getoption("--fuzz-requests")
    (tmp_path / "model").mkdir()
    server = serve(str(tiny_gemma3(tmp_path / "model")), "--context-length", "96")
    result = run(server.url, tmp_path, num_requests)
    assert result.returncode == 0, result.stdout + result.stderr
    generated = re.search(r"(\d+) generated", result.stdout)
    assert generated is not None, result.stdout
    assert int(generated[1]) >= num_requests
    with httpx.Client(base_url=server.url, timeout=HANG_S, trust_env=False) as client:
        metrics = client.get("/metrics").text
        assert client.get("/health_generate").status_code == 200
    counts = re.findall(r'http_responses_total\{endpoint="([^"]+)".*status_code="(\d+)"', metrics)
    assert "500" not in {status for _, status in counts}
    good = {endpoint for endpoint, status in counts if status == "200"}
    assert {"/v1/chat/completions", "/v1/completions", "/generate", "/v1/messages"} <= good
    assert re.search(r"^sglang:num_running_reqs\{[^}]*\} 0\.0$", metrics, re.M)
    assert server.process.poll() is None

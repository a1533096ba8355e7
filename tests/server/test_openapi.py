"""The gateway against its specification, by schemathesis.

``lance_namespace_openapi.yaml`` is docs/src/spec.yaml of
https://github.com/lance-format/lance-namespace at commit 68ea9a3e, unchanged; its licence is the
Apache License 2.0.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from server.authenticated import one_api_key
from server.gateways import serve_namespace

from lance_bridge_server.gateway.limits import Limits

pytestmark = pytest.mark.spec("server.md#clients", "server.md#responses")

HERE = Path(__file__).parent
SPECIFICATION = HERE / "lance_namespace_openapi.yaml"
CHECKS = (
    "not_a_server_error",
    "statuses_are_declared_or_known",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "invalid_requests_are_refused",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
    "valid_requests_are_read",
)


@pytest.mark.servers
@pytest.mark.parametrize(
    "phases", ["coverage", pytest.param("coverage,fuzzing", marks=pytest.mark.slow)]
)
def test_the_gateway_does_as_the_specification_says(
    namespace: Any, limits: Limits, tmp_path: Path, phases: str
) -> None:
    authenticator, key = one_api_key(tmp_path / "keys.json")
    with serve_namespace(namespace, authenticator=authenticator, limits=limits) as url:
        environment = {
            "LANCE_BRIDGE_TEST_GATEWAY": url,
            "LANCE_BRIDGE_TEST_API_KEY": key,
            "SCHEMATHESIS_HOOKS": "schemathesis_hooks",
            "PYTHONPATH": str(HERE),
        }
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "run", str(SPECIFICATION)),
            *("--url", url, "--header", f"x-api-key:{key}", "--checks", ",".join(CHECKS)),
            *("--seed", "20261123", "--generation-deterministic"),
            *("--phases", phases, "--max-examples", "2", "--no-color"),
            *("--warnings", "off", "--generation-with-security-parameters", "false"),
        ]
        run = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
    assert run.returncode == 0, run.stdout[-60_000:] + run.stderr
    assert "54 selected / 54 total" in run.stdout.replace("  ", " "), run.stdout

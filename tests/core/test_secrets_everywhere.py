"""No secret of any property is in anything that a process leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from core.secret_search import Secrets
from servers.processes import free_port

from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge_glue import GlueNamespace
from lance_bridge_hive import HiveNamespace
from lance_bridge_unity import UnityNamespace

pytestmark = pytest.mark.spec("common.md#security")

SCRIPT = Path(__file__).with_name("secrets_process.py")


def cases(secrets: Secrets) -> list[dict[str, object]]:
    port = free_port()
    storage = secrets.storage("storage")

    def case(impl: str, bad: dict[str, str], **properties: str) -> dict[str, object]:
        wrong = {"root": f"s3://me:{secrets.new(f'{impl} root')}@b/x", **bad}
        return {"impl": impl, "bad": wrong, "properties": {**storage, **properties}}

    def url(scheme: str, what: str) -> str:
        return f"{scheme}://me:{secrets.new(what)}@127.0.0.1:{port}"

    quick = {"client.retry-timeout": "0", "client.timeout": "5"}
    aws = {"region": "eu-central-1", "endpoint": f"http://127.0.0.1:{port}", "max_retries": "0"}
    keys = {
        "access_key_id": "AKKNOWN",
        "secret_access_key": secrets.new("glue secret"),
        "session_token": secrets.new("glue token"),
    }
    unity = {"host": f"http://127.0.0.1:{port}", "max_retries": "0", "retry_timeout": "0"}
    return [
        case(
            "hive",
            {"uri": url("thrift", "hive uri"), "client.timeout": secrets.new("hive timeout")},
            uri=f"thrift://127.0.0.1:{port}",
            **{"auth.mechanism": "plain", "auth.username": "ann"},
            **{"auth.password": secrets.new("hive password")},
            **quick,
        ),
        case(
            "hive",
            {},
            uri=f"http://127.0.0.1:{port}/x",
            **{"http.token": secrets.new("hive token")},
            **quick,
        ),
        case("glue", {"endpoint": url("http", "glue endpoint")}, **aws, **keys),
        case(
            "glue",
            {"assume_role_endpoint": url("http", "sts endpoint")},
            assume_role_arn="arn:aws:iam::123456789012:role/x",
            assume_role_endpoint=f"http://127.0.0.1:{port}",
            **aws,
            **keys,
        ),
        case("unity", {"host": url("http", "unity host")}, token=secrets.new("token"), **unity),
        case("unity", {}, auth_token=secrets.new("unity auth_token"), **unity),
        case(
            "unity",
            {},
            client_id="known",
            client_secret=secrets.new("unity client_secret"),
            server="databricks",
            **unity,
        ),
    ]


@pytest.mark.quick
@pytest.mark.parametrize("kind", [HiveNamespace, GlueNamespace, UnityNamespace])
def test_every_secret_property_of_an_adapter_is_among_the_cases(
    kind: type[LanceBridgeNamespace],
) -> None:
    given = {
        key
        for case in cases(Secrets())
        if case["impl"] == kind.impl
        for key in case["properties"]  # type: ignore[attr-defined]  # a mapping
    }
    assert {each.key for each in kind.config_type.declared() if each.secret} <= given


@pytest.mark.servers
def test_no_secret_is_in_anything_that_a_process_leaves_behind(tmp_path: Path) -> None:
    secrets = Secrets()
    given = cases(secrets)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "DATABRICKS_"))}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path)],
        input=json.dumps(given),
        cwd=tmp_path,
        env={**kept, "HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    content = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    content |= {"stdout": done.stdout.encode(), "stderr": done.stderr.encode()}
    log = next(text for name, text in content.items() if name.endswith("debug.log"))
    assert b"botocore" in log
    assert b"AKKNOWN" in log
    assert secrets.found_among(content) == {}

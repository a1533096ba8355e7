"""The Helm chart: its values by its own schema, and what Helm and Kubernetes make of them.

What needs Helm is slow, and skipped without it: see `make helm`. No cluster has run the chart.
"""

from __future__ import annotations

import copy
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from servers.processes import run_command

from lance_bridge_server.access.policies import CedarAuthorizer
from lance_bridge_server.config import ServerSettings, SettingsSource

pytestmark = pytest.mark.quick

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "deploy" / "helm" / "lance-bridge"
VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
PAGE = REPOSITORY / "docs" / "gateway.md"
HELM = REPOSITORY / ".cache" / "helm" / "helm"
"""`make helm` builds it."""
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
RELEASES = ["1.25", "1.30", "1.37"]
"""Of Kubernetes: the oldest that the chart takes, and later ones."""
SMALL, WHOLE = VALUES
every_file = pytest.mark.parametrize("values", VALUES, ids=lambda path: path.name)


def load(path: Path) -> Any:
    """Return the content of a YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def values_of_page() -> str:
    """Return the values that `docs/gateway.md` shows."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## On Kubernetes\n")[2]
    return section.partition("```yaml\n")[2].partition("```")[0]


def merged(base: Any, other: Any) -> Any:
    """Return values as Helm merges them: mappings by their keys, everything else as a whole."""
    if not isinstance(base, Mapping) or not isinstance(other, Mapping):
        return other
    return {**base, **{key: merged(base.get(key), value) for key, value in other.items()}}


def helm(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run Helm, with a home of its own that is never written; skip the test where Helm is not."""
    if not HELM.exists():
        pytest.skip("no Helm: make helm")
    return run_command(HELM, *arguments, code=code, cwd=CHART.parent)


def render(values: Path, *options: str) -> list[dict[str, Any]]:
    """Return the objects of a release."""
    done = helm("template", "gw", CHART.name, "--namespace", "data", "-f", values, *options)
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def problems(values: Any) -> list[str]:
    validator = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)
    return [error.message for error in validator.iter_errors(values)]


def test_every_value_is_in_the_schema() -> None:
    assert {*DEFAULTS} == {*SCHEMA["properties"]} - {"global"}
    for name, known in SCHEMA["properties"].items():
        if known.get("additionalProperties") is False:
            assert {*DEFAULTS[name]} == {*known["properties"]}, name


@pytest.mark.parametrize("name", ["small-values.yaml", "whole-values.yaml", "of the page"])
def test_the_schema_takes_values_and_the_server_their_configuration(
    name: str, tmp_path: Path
) -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in VALUES}
    text = {**texts, "of the page": values_of_page()}[name]
    values = merged(DEFAULTS, yaml.safe_load(text))
    assert problems(values) == []
    path = tmp_path / "server.yaml"
    path.write_text(yaml.safe_dump(values["config"]), encoding="utf-8")
    settings = SettingsSource(path).read()
    assert settings.listeners[0].host == "0.0.0.0"
    assert settings.authentication
    for file, policies in values["policies"].items():
        (tmp_path / file).write_text(policies, encoding="utf-8")
        CedarAuthorizer(tmp_path / file)


@pytest.mark.parametrize(
    ("keys", "value", "problem"),
    [
        (["config", "catalogs"], {}, "non-empty"),
        (["config", "listeners"], [{"socket": "/s"}], "'host' is a required"),
        (["policies"], {"a.txt": ""}, "does not match"),
        (["secretEnvironment"], {"A": {"name": "s", "key": "k", "value": "v"}}, "unexpected"),
        (["apiKeySecret"], {"name": "s"}, "unexpected"),
        (["replicas"], "2", "not of type"),
    ],
)
def test_the_schema_refuses_mistakes(keys: list[str], value: Any, problem: str) -> None:
    values = copy.deepcopy(merged(DEFAULTS, load(VALUES[0])))
    inner = values
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    assert any(problem in each for each in problems(values)), problems(values)


def test_paths_of_secrets_in_the_configuration_are_those_that_are_mounted() -> None:
    text = (CHART / "ci" / "whole-values.yaml").read_text(encoding="utf-8")
    template = (CHART / "templates" / "deployment.yaml").read_text(encoding="utf-8")
    mounted = set(re.findall(r"mountPath: (/etc/\S+)", template))
    named = {str(Path(each).parent) for each in re.findall(r"/etc/[\w./-]+\.\w+", text)}
    assert named == mounted - {"/etc/lance-bridge/config", "/etc/lance-bridge/policies"}


# -- rendered by Helm, and validated by the schemas of Kubernetes ----------------------------------


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Return the object of a kind."""
    found = [each for each in objects if each["kind"] == kind]
    assert found, kind
    return found[0]


def pod_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    pod: dict[str, Any] = of_kind(objects, "Deployment")["spec"]["template"]["spec"]
    return pod


@pytest.mark.slow
@pytest.mark.parametrize("values", [*VALUES, None], ids=lambda path: path.name if path else "page")
def test_helm_lints_it_and_its_objects_are_those_of_kubernetes(
    values: Path | None, tmp_path: Path
) -> None:
    if values is None:
        values = tmp_path / "values.yaml"
        values.write_text(values_of_page(), encoding="utf-8")
    helm("lint", "--strict", CHART.name, "-f", values)
    for release in RELEASES:
        for each in render(values, "--kube-version", release):
            kubernetes_validate.validate(each, release, strict=True)


@pytest.mark.slow
def test_the_validator_refuses_what_kubernetes_does_not_know() -> None:
    deployment = of_kind(render(SMALL), "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["portz"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, RELEASES[-1], strict=True)


@pytest.mark.slow
def test_kinds_are_optional() -> None:
    small = {"ConfigMap", "Deployment", "PodDisruptionBudget", "Service", "ServiceAccount"}
    assert {each["kind"] for each in render(SMALL)} == small
    more = {"HorizontalPodAutoscaler", "Ingress", "NetworkPolicy"}
    assert {each["kind"] for each in render(WHOLE)} == small | more


@pytest.mark.slow
@every_file
def test_pods_are_not_root_and_write_in_tmp_alone(values: Path) -> None:
    pod = pod_of(render(values))
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 65532
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert pod["automountServiceAccountToken"] is False
    writable = [each["mountPath"] for each in container["volumeMounts"] if "readOnly" not in each]
    assert writable[0] == "/tmp"
    assert [each for each in writable if each.startswith("/etc")] == []


@pytest.mark.slow
@every_file
def test_pods_end_after_their_requests(values: Path, tmp_path: Path) -> None:
    objects = render(values)
    settings = configuration(objects, tmp_path)
    assert pod_of(objects)["terminationGracePeriodSeconds"] >= settings.stop_seconds + 10


@pytest.mark.slow
@every_file
def test_the_server_reads_the_configuration_that_is_mounted(values: Path, tmp_path: Path) -> None:
    objects = render(values)
    settings = configuration(objects, tmp_path)
    assert sorted(settings.catalogs) == sorted(load(values)["config"]["catalogs"])
    [container] = pod_of(objects)["containers"]
    port = settings.listeners[0].port
    assert container["ports"] == [{"name": "http", "containerPort": port}]
    scheme = "HTTPS" if settings.tls else "HTTP"
    for probe, path in (("startup", "/livez"), ("liveness", "/livez"), ("readiness", "/readyz")):
        expected = {"path": path, "port": "http", "scheme": scheme}
        assert container[f"{probe}Probe"]["httpGet"] == expected


def configuration(objects: list[dict[str, Any]], directory: Path) -> ServerSettings:
    path = directory / "server.yaml"
    path.write_text(of_kind(objects, "ConfigMap")["data"]["server.yaml"], encoding="utf-8")
    return SettingsSource(path).read()


@pytest.mark.slow
def test_secrets_are_referred_to() -> None:
    pod = pod_of(render(WHOLE))
    [container] = pod["containers"]
    token = {"name": "unity", "key": "token"}
    assert {
        "name": "LANCE_BRIDGE_UNITY_TOKEN",
        "valueFrom": {"secretKeyRef": token},
    } in container["env"]
    secrets = [each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each]
    assert secrets == ["lance-bridge-keys", "lance-bridge-tls", "lance-bridge-client-ca"]
    assert of_kind(render(WHOLE), "ServiceAccount")["metadata"]["annotations"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "key",
    [
        "token",
        "password",
        "auth.password",
        "secret_access_key",
        "storage.aws_session_token",
        "storage.azure_sas_key",
    ],
)
def test_a_secret_among_the_values_is_refused(key: str, tmp_path: Path) -> None:
    values = load(SMALL)
    values["config"]["catalogs"]["lake"][key] = "hunter2"
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    done = helm("template", "gw", CHART.name, "-f", path, code=1)
    assert f"config.catalogs.lake.{key} is a secret: give it by secretEnvironment" in done.stderr
    assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_changed_configuration_replaces_the_pods() -> None:
    def checksum(*options: str) -> str:
        template = of_kind(render(SMALL, *options), "Deployment")["spec"]["template"]
        found: str = template["metadata"]["annotations"]["checksum/config"]
        return found

    assert checksum() == checksum("--set", "replicas=5")
    assert checksum() != checksum("--set", "config.workers=2")

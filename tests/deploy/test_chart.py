"""The Helm chart, by Helm: linted, rendered, and validated by the schemas of Kubernetes.

Slow, and skipped without Helm: see `make helm`. No cluster has run the chart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from lance_bridge_server.configuration.settings import ServerSettings
from lance_bridge_server.configuration.source import SettingsSource

from .chart import CHART, HELM, VALUES, helm, load, render, values_of_page

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not HELM.exists(), reason="no Helm: make helm")]
RELEASES = ["1.25", "1.30", "1.37"]
"""Of Kubernetes: the oldest that the chart takes, and later ones."""
SMALL, WHOLE = VALUES

every_file = pytest.mark.parametrize("values", VALUES, ids=lambda path: path.name)


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Return the object of a kind."""
    found = [each for each in objects if each["kind"] == kind]
    assert found, kind
    return found[0]


def pod_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    pod: dict[str, Any] = of_kind(objects, "Deployment")["spec"]["template"]["spec"]
    return pod


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


def test_the_validator_refuses_what_kubernetes_does_not_know() -> None:
    deployment = of_kind(render(SMALL), "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["portz"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, RELEASES[-1], strict=True)


def test_kinds_are_optional() -> None:
    small = {"ConfigMap", "Deployment", "PodDisruptionBudget", "Service", "ServiceAccount"}
    assert {each["kind"] for each in render(SMALL)} == small
    more = {"HorizontalPodAutoscaler", "Ingress", "NetworkPolicy"}
    assert {each["kind"] for each in render(WHOLE)} == small | more


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


@every_file
def test_pods_end_after_their_requests(values: Path, tmp_path: Path) -> None:
    objects = render(values)
    settings = configuration(objects, tmp_path)
    assert pod_of(objects)["terminationGracePeriodSeconds"] >= settings.stop_seconds + 10


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


def test_a_changed_configuration_replaces_the_pods() -> None:
    def checksum(*options: str) -> str:
        template = of_kind(render(SMALL, *options), "Deployment")["spec"]["template"]
        found: str = template["metadata"]["annotations"]["checksum/config"]
        return found

    assert checksum() == checksum("--set", "replicas=5")
    assert checksum() != checksum("--set", "config.workers=2")

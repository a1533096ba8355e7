"""The compose files are well formed and safe to start. Whether an image runs is not tested."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
import yaml
from servers.processes import run_command

import lance_bridge
from lance_bridge import LanceBridgeNamespace, kit_options
from lance_bridge.testing import without
from lance_bridge.testing.target import from_capabilities
from lance_bridge_server.config import ApiKeySettings, SettingsSource

pytestmark = pytest.mark.checks

REPOSITORY = Path(__file__).parents[2]
DOCKER = REPOSITORY / "docker"
COMPOSE_FILES = sorted(DOCKER.glob("*.yaml"))
MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")

README = (DOCKER / "README.md").read_text(encoding="utf-8")


def services(compose_file: Path) -> dict[str, dict[str, Any]]:
    """Return the services of a file, and of those that it includes."""
    document = yaml.safe_load(compose_file.read_text(encoding="utf-8"))
    found: dict[str, dict[str, Any]] = dict(document["services"])
    for included in document.get("include", []):
        found |= services(compose_file.parent / included)
    return found


@pytest.mark.parametrize("compose_file", COMPOSE_FILES, ids=lambda path: path.name)
def test_a_compose_file_is_valid_and_safe_to_start(compose_file: Path) -> None:
    command = ["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    run_command(sys.executable, *command, compose_file)
    assert list(faults(services(compose_file))) == []


def faults(found: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield what is wrong with the services of a file."""
    for name, service in found.items():
        if not re.search(r":(v?\d+\.\d+|RELEASE\.\d{4}-)[^:]*$", service["image"]):
            yield f"{name}: the tag is not a version: {service['image']}"
        ports = service.get("ports", [])
        if not all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in ports):
            yield f"{name}: ports are open on other than the loopback address: {ports}"
        if service.get("network_mode") == "host":
            yield f"{name}: it uses the network of the host"
        if ports and "test" not in service.get("healthcheck", {}):
            yield f"{name}: it has no health check"
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            is_made = f"docker/{source[2:]}\n" in MAKEFILE
            if source.startswith("./") and not (is_made or (DOCKER / source).exists()):
                yield f"{name}: it mounts {source}, which does not exist"
        for dependency, condition in service.get("depends_on", {}).items():
            if not set(service["profiles"]) <= set(found[dependency]["profiles"]):
                yield f"{name}: {dependency} is not in all of its profiles"
            if condition["condition"] == "service_healthy" and not found[dependency].get(
                "healthcheck"
            ):
                yield f"{name}: {dependency} has no health check"


def test_the_gateway_can_change_nothing_but_its_volumes() -> None:
    names = [path.name for path in COMPOSE_FILES]
    assert names == ["gateway.yaml", "glue.yaml", "hive.yaml", "unity.yaml"]
    gateway = services(DOCKER / "gateway.yaml")["gateway"]
    assert gateway["read_only"] is True
    assert gateway["tmpfs"] == ["/tmp"]
    assert gateway["cap_drop"] == ["ALL"]
    assert gateway["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in gateway


def test_the_server_reads_the_configuration_of_the_gateway() -> None:
    gateway = services(DOCKER / "gateway.yaml")["gateway"]
    [mounted] = [each for each in gateway["volumes"] if each.endswith("/server.yaml:ro")]
    settings = SettingsSource(DOCKER / mounted.split(":")[0]).read()
    [metastore] = settings.catalogs.values()
    assert urlsplit(metastore["uri"]).hostname in gateway["depends_on"]
    [keys] = settings.authentication
    assert isinstance(keys, ApiKeySettings)
    assert [f"/run/secrets/{name}" for name in gateway["secrets"]] == [str(keys.file)]
    assert int(gateway["stop_grace_period"].removesuffix("s")) > settings.stop_seconds
    assert gateway["ports"] == [f"127.0.0.1:2333:{settings.listeners[0].port}"]


def test_the_configuration_is_well_formed_and_agrees_with_the_database() -> None:
    root = ElementTree.parse(DOCKER / "hive-site.xml").getroot()
    properties = {entry.findtext("name"): entry.findtext("value") for entry in root}
    database = services(DOCKER / "hive.yaml")["database-3-1"]["environment"]

    assert properties["javax.jdo.option.ConnectionUserName"] == database["POSTGRES_USER"]
    assert database["POSTGRES_HOST_AUTH_METHOD"] == "trust"
    assert "javax.jdo.option.ConnectionPassword" not in properties


def addresses(name: str) -> dict[str, tuple[str, str]]:
    """Image and address of each service of a compose file that is published."""
    return {
        service: (found["image"], found["ports"][0].rpartition(":")[0])
        for service, found in services(DOCKER / name).items()
        if "ports" in found
    }


def test_the_readme_names_image_and_address_of_every_service_and_every_metastore() -> None:
    for service, (image, place) in (addresses("unity.yaml") | addresses("glue.yaml")).items():
        row = rf"\| `{service}` +\| `{re.escape(image)}` +\| `http://{place}` +\|"
        assert re.search(row, README)
    metastores = {
        name.removeprefix("metastore-").replace("-", "."): f"thrift://{place}"
        for name, (_, place) in addresses("hive.yaml").items()
        if name.startswith("metastore-")
    }
    assert dict(re.findall(r"(\d\.\d)=(thrift://[\w.]+:\d+)", README)) == metastores
    assert {*metastores} == {"2.3", "3.1", "4.0", "4.1"}


def test_the_readme_has_a_command_for_the_kit_on_every_server() -> None:
    commands = re.findall(r"^    python -m lance_bridge\.testing (.+)$", README, re.MULTILINE)
    published = {
        address for name in ("unity.yaml", "glue.yaml") for _, address in addresses(name).values()
    }
    assert len(commands) == 3
    assert [each for each in published if not any(each in command for command in commands)] == []
    for command in commands:
        given = kit_options.parse(shlex.split(command))
        with lance_bridge.connect(given.catalog, dict(given.property)) as namespace:  # type: ignore[attr-defined]  # ours
            assert isinstance(namespace, LanceBridgeNamespace)
            features = from_capabilities(namespace.capabilities)
            assert len(given.parent) == namespace.capabilities.levels - 1
            assert without(features, *given.without)

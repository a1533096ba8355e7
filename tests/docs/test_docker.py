"""The compose files are well formed and safe to start. Whether an image runs is not tested."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

import lance_bridge
from lance_bridge import LanceBridgeNamespace, kit_options
from lance_bridge.testing import without
from lance_bridge.testing.features import from_capabilities

REPOSITORY = Path(__file__).parents[2]
DOCKER = REPOSITORY / "docker"
COMPOSE_FILES = sorted(DOCKER.glob("*.yaml"))
MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")

README = (DOCKER / "README.md").read_text(encoding="utf-8")
METASTORES = dict(re.findall(r"(\d\.\d)=(thrift://[\w.]+:\d+)", README))


def services(compose_file: Path) -> dict[str, dict[str, Any]]:
    document = yaml.safe_load(compose_file.read_text(encoding="utf-8"))
    found: dict[str, dict[str, Any]] = document["services"]
    return found


def all_services() -> list[Any]:
    """One test parameter per service of every compose file."""
    return [
        pytest.param(service, id=f"{compose_file.stem}-{name}")
        for compose_file in COMPOSE_FILES
        for name, service in services(compose_file).items()
    ]


def test_there_are_compose_files() -> None:
    assert [path.name for path in COMPOSE_FILES] == ["glue.yaml", "hive.yaml", "unity.yaml"]


@pytest.mark.parametrize("compose_file", COMPOSE_FILES, ids=lambda path: path.name)
def test_a_compose_file_follows_the_compose_specification(compose_file: Path) -> None:
    command = ["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]

    result = subprocess.run(
        [sys.executable, *command, str(compose_file)], capture_output=True, text=True, check=False
    )

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("service", all_services())
def test_an_image_has_a_fixed_tag(service: dict[str, Any]) -> None:
    _, separator, tag = service["image"].rpartition(":")

    assert separator
    assert re.match(r"v?\d+\.\d+|RELEASE\.\d{4}-", tag), f"not a version: {tag}"


@pytest.mark.parametrize("service", all_services())
def test_ports_are_open_on_the_loopback_address_only(service: dict[str, Any]) -> None:
    ports = service.get("ports", [])

    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in ports), ports
    assert service.get("network_mode") != "host"


@pytest.mark.parametrize("service", all_services())
def test_a_mounted_file_exists_or_make_fetches_it(service: dict[str, Any]) -> None:
    sources = [volume.split(":")[0] for volume in service.get("volumes", [])]
    relative = [source for source in sources if source.startswith("./")]

    missing = [source for source in relative if not (DOCKER / source).exists()]

    assert all(f"docker/{source[2:]}\n" in MAKEFILE for source in missing), missing


@pytest.mark.parametrize("compose_file", COMPOSE_FILES, ids=lambda path: path.name)
def test_a_dependency_is_in_every_profile_of_its_dependant(compose_file: Path) -> None:
    found = services(compose_file)

    for service in found.values():
        for dependency, condition in service.get("depends_on", {}).items():
            assert set(service["profiles"]) <= set(found[dependency]["profiles"])
            if condition["condition"] == "service_healthy":
                assert "healthcheck" in found[dependency]


@pytest.mark.parametrize("compose_file", COMPOSE_FILES, ids=lambda path: path.name)
def test_a_published_service_has_a_health_check(compose_file: Path) -> None:
    published = [service for service in services(compose_file).values() if "ports" in service]

    assert published
    assert all("test" in service["healthcheck"] for service in published)


def test_the_readme_names_every_metastore_and_its_port() -> None:
    found = {
        name.removeprefix("metastore-").replace(
            "-", "."
        ): f"thrift://{service['ports'][0].rpartition(':')[0]}"
        for name, service in services(DOCKER / "hive.yaml").items()
        if name.startswith("metastore-")
    }

    assert found == METASTORES
    assert set(found) == {"2.3", "3.1", "4.0", "4.1"}


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
        service: (found["image"], f"http://{found['ports'][0].rpartition(':')[0]}")
        for service, found in services(DOCKER / name).items()
        if "ports" in found
    }


@pytest.mark.parametrize("name", ["unity.yaml", "glue.yaml"])
def test_the_readme_names_image_and_address_of_every_service(name: str) -> None:
    found = addresses(name)

    assert found
    for service, (image, address) in found.items():
        assert re.search(rf"\| `{service}` +\| `{re.escape(image)}` +\| `{address}` +\|", README)


KIT_COMMANDS = re.findall(r"^    python -m lance_bridge\.testing (.+)$", README, re.MULTILINE)


def test_there_is_a_command_for_the_kit_on_every_server() -> None:
    published = [
        address for name in ("unity.yaml", "glue.yaml") for _, address in addresses(name).values()
    ]

    assert len(KIT_COMMANDS) == 3
    for address in published:
        assert any(address in command for command in KIT_COMMANDS), address


@pytest.mark.parametrize("command", KIT_COMMANDS)
def test_a_command_for_the_kit_has_properties_that_its_catalog_takes(command: str) -> None:
    given = kit_options.parse(shlex.split(command))

    with lance_bridge.connect(given.catalog, dict(given.property)) as namespace:  # type: ignore[attr-defined]  # ours
        assert isinstance(namespace, LanceBridgeNamespace)
        features = from_capabilities(namespace.capabilities)
        assert len(given.parent) == namespace.capabilities.levels - 1
    assert without(features, *given.without)

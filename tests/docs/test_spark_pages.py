"""The pages about Spark on platforms that are not run here: what they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from lance_bridge import LanceBridgeNamespace
from lance_bridge.registry import implementation
from lance_bridge_spark.addresses import CATALOG_CLASS, catalogs_in
from lance_bridge_spark.jvm.compiling import SOURCES

from .gateway_pages import REPOSITORY, blocks

pytestmark = pytest.mark.checks

HOW_TO = REPOSITORY / "docs" / "how-to"
PAGES = sorted(HOW_TO.glob("spark*.md"))
RELEASES = ("1.30", "1.37")
_SETTING = re.compile(
    r"(?<![\w.])(spark\.(?:sql|emr|yarn|kubernetes|executor|master|jars)[\w.-]*)[=\s]+(\S+)"
)


def settings_of(page: Path) -> dict[str, str]:
    """Return the settings that a page's snippets give, by name."""
    text = "\n".join(block.text for block in blocks(page) if block.language != "python")
    return dict(_SETTING.findall(text))


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_settings_of_the_pages_name_what_exists(page: Path) -> None:
    settings = settings_of(page)
    [address] = catalogs_in(settings).values()
    assert settings[f"spark.sql.catalog.{address.name}"] == CATALOG_CLASS
    extension = settings["spark.sql.extensions"].replace(".", "/")
    assert (SOURCES / f"{extension}.java").is_file()
    kind = implementation(address.properties["impl"])
    assert issubclass(kind, LanceBridgeNamespace)
    known = {each.key for each in kind.config_type.declared()}
    assert {*address.properties} - {"impl"} <= known


def manifests() -> list[dict[str, object]]:
    """Return what the page about Kubernetes has the reader apply."""
    texts = [
        block.text for block in blocks(HOW_TO / "spark-kubernetes.md") if block.language == "yaml"
    ]
    return [each for text in texts for each in yaml.safe_load_all(text)]


@pytest.mark.parametrize("release", RELEASES)
def test_manifests_are_what_kubernetes_knows(release: str) -> None:
    kinds = {each["kind"] for each in manifests()}
    assert kinds == {"ServiceAccount", "Role", "RoleBinding", "Secret", "Pod"}
    for each in manifests():
        kubernetes_validate.validate(each, release, strict=True)

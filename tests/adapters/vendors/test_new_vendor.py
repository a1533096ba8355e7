"""A vendor for another store is one module and its entry point: nothing of ours names it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from core.memory_catalog import SERVERS, MemoryCatalog, MemoryConfig, MemoryServer
from lance_namespace.errors import InvalidInputError

from lance_bridge.catalog import TableRecord
from lance_bridge.config import CatalogConfig, load, public_vendor_options
from lance_bridge.credentials import VendedCredentials

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#storage-credentials")]

MODULE = """
from typing import ClassVar

from lance_bridge.credentials import Vendor, VendorOptions, expiring_options


class OssOptions(VendorOptions):
    holds_secrets: ClassVar[bool] = {holds_secrets}
    role: str


class OssVendor(Vendor):
    options_type = OssOptions
    stores = frozenset({{"oss"}})

    def vend(self, grant):
        key = f"{{self.options.role}} of {{grant.bucket}}/{{grant.prefix}}"
        return expiring_options({{"oss_access_key_id": key}}, 4_000_000_000)
"""


@pytest.fixture(params=[False, True])
def holds_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[bool]:
    """Install a vendor of OSS, whose options may be secrets or not."""
    name = f"oss_vendor_{request.param}".lower()
    (tmp_path / f"{name}.py").write_text(MODULE.format(holds_secrets=request.param))
    installed = tmp_path / "oss_vendor-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: oss-vendor\nVersion: 1.0\n")
    points = f"[lance_bridge.vendors]\noss = {name}:OssVendor\n"
    (installed / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    public_vendor_options.cache_clear()
    monkeypatch.setitem(SERVERS, "new", MemoryServer())
    yield bool(request.param)
    public_vendor_options.cache_clear()


OSS = {"credentials.vendor": "oss", "credentials.role": "reader"}


def vended(location: str, **properties: str) -> Mapping[str, str]:
    given = {"uri": "new", "root": "oss://lake/tables", **properties}
    config = load(MemoryConfig, "memory", given)
    record = TableRecord(("db", "t"), location)
    return VendedCredentials(MemoryCatalog(config), config).of(record, write=False)


def test_it_vends_for_its_store(holds_secrets: bool) -> None:
    options = vended("oss://lake/tables/t.lance", **OSS)
    assert options["oss_access_key_id"] == "reader of lake/tables/t.lance"
    assert CatalogConfig.is_secret("credentials.role") is holds_secrets


@pytest.mark.usefixtures("holds_secrets")
def test_a_table_in_another_store_is_refused() -> None:
    roots = {"credentials.allowed_roots": "oss://lake, s3://lake"}
    with pytest.raises(InvalidInputError, match=r"is on s3://, for which no vendor is set"):
        vended("s3://lake/t.lance", **OSS, **roots)


@pytest.mark.usefixtures("holds_secrets")
def test_the_options_of_the_catalog_are_for_every_store() -> None:
    given = {"credentials.vendor": "static", "storage.oss_access_key_id": "known"}
    options = vended("oss://lake/tables/t.lance", **given)
    assert options["oss_access_key_id"] == "known"

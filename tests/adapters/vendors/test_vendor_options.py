"""The options of vendors: what a missing extra is, and which of them are secrets."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from core.memory_catalog import SERVERS, MemoryCatalog, MemoryConfig, MemoryServer
from lance_namespace.errors import InvalidInputError
from pydantic import ValidationError

from lance_bridge import extras
from lance_bridge.catalog import TableRecord
from lance_bridge.config import CatalogConfig, load, public_vendor_options
from lance_bridge.credentials import VendedCredentials, Vendor, VendorOptions
from lance_bridge_vendors.aws import AwsOptions, AwsVendor
from lance_bridge_vendors.azure import AzureOptions, AzureVendor
from lance_bridge_vendors.google import GoogleOptions, GoogleVendor

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#storage-credentials")]

ARN = "arn:aws:iam::123456789012:role/lake"
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


@pytest.mark.spec("common.md#rights-and-lifetime")
@pytest.mark.parametrize(
    ("kind", "options"),
    [(AwsVendor, {"role_arn": ARN}), (AzureVendor, {"account_name": "lake"}), (GoogleVendor, {})],
)
def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, kind: type[Vendor], options: dict[str, str]
) -> None:
    monkeypatch.setattr(extras, "_is_installed", lambda package: not package)
    name = kind.__name__.removesuffix("Vendor").lower()
    with pytest.raises(extras.MissingExtraError, match=rf"lance-bridge\[vend-{name}\]"):
        kind(kind.options_type.model_validate(options), {})


def test_a_wrong_profile_of_aws_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    options = AwsOptions.model_validate({"role_arn": ARN})
    with pytest.raises(ValueError, match=r"AWS's configuration cannot be used: .*no-such-profile"):
        AwsVendor(options, {"aws_region": "eu-central-1"})


@pytest.mark.parametrize("kind", [AwsVendor, AzureVendor, GoogleVendor])
def test_no_option_is_a_secret_that_a_pickle_would_leave_out(kind: type[Vendor]) -> None:
    keys = [f"credentials.{each}" for each in kind.options_type.model_fields]
    assert [each for each in keys if CatalogConfig.is_secret(each)] == []
    assert CatalogConfig.is_secret("credentials.api_key")


ADDRESSES = [
    (AwsOptions, "endpoint"),
    (AwsOptions, "sts_endpoint"),
    (AzureOptions, "endpoint"),
    (GoogleOptions, "sts_endpoint"),
    (GoogleOptions, "iam_endpoint"),
]


def with_address(kind: type[VendorOptions], option: str, value: str) -> VendorOptions:
    role = {"role_arn": ARN} if kind is AwsOptions else {}
    return kind.model_validate({**role, option: value})


@pytest.mark.parametrize(("kind", "option"), ADDRESSES)
@pytest.mark.parametrize(
    "value",
    [
        "https://user:secret@minio",
        "https://minio/bucket?x",
        "https://minio/bucket",
        "https://minio?token=secret",
        "https://minio#x",
        "https://minio:9000\n",
        "my https://minio",
        "ftp://minio",
        "minio:9000",
    ],
)
def test_an_address_with_more_than_a_host_and_a_port_is_refused(
    kind: type[VendorOptions], option: str, value: str
) -> None:
    with pytest.raises(ValidationError) as error:
        with_address(kind, option, value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(("kind", "option"), ADDRESSES)
@pytest.mark.parametrize("value", ["https://minio.local", "https://[::1]:9000/", "https://a_b:443"])
def test_an_address_has_a_host_and_maybe_a_port(
    kind: type[VendorOptions], option: str, value: str
) -> None:
    assert getattr(with_address(kind, option, value), option) == value.rstrip("/")


# -- a vendor for another store --------------------------------------------------------------------


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

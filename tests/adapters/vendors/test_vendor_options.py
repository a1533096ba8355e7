"""The options of vendors: what a missing extra is, and which of them are secrets."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from lance_bridge import extras
from lance_bridge.config import CatalogConfig
from lance_bridge.credentials import Vendor, VendorOptions
from lance_bridge_vendors.aws import AwsOptions, AwsVendor
from lance_bridge_vendors.azure import AzureOptions, AzureVendor
from lance_bridge_vendors.google import GoogleOptions, GoogleVendor

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#storage-credentials")]

ARN = "arn:aws:iam::123456789012:role/lake"


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

"""The options of vendors: what a missing extra is, and which of them are secrets."""

from __future__ import annotations

import pytest

from lance_bridge import extras
from lance_bridge.credentials import Vendor
from lance_bridge.storage_options import is_secret_vendor_option
from lance_bridge_vendors.aws import AwsVendor
from lance_bridge_vendors.azure import AzureVendor
from lance_bridge_vendors.google import GoogleVendor

ARN = "arn:aws:iam::123456789012:role/lake"


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


@pytest.mark.parametrize("kind", [AwsVendor, AzureVendor, GoogleVendor])
def test_no_option_is_a_secret_that_a_pickle_would_leave_out(kind: type[Vendor]) -> None:
    assert [each for each in kind.options_type.model_fields if is_secret_vendor_option(each)] == []

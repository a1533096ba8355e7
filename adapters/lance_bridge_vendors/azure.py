"""Azure: a shared access signature for one table's directory, made with a user delegation key.

The account must have a hierarchical namespace: otherwise Azure refuses signatures for directories,
and a signature for the container would allow access to all tables in it. A signature cannot exclude
file names, so a client that may write to a table can also create its versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from lance_namespace.errors import PermissionDeniedError
from pydantic import Field, field_validator

from lance_bridge import extras
from lance_bridge.credentials import Grant, Vendor, VendorOptions, expiring_options
from lance_bridge.errors import display
from lance_bridge.storage_options import options_of_store

from . import HTTPS_URL, without_slash

_ACCOUNT = r"^[a-z0-9]{3,24}$"
_OWN = ("tenant_id", "client_id", "client_secret")
_MAX_SECONDS = 604_500
"""Azure's limit of seven days for a key, minus the clock skew that `azure_sas` allows."""


class AzureOptions(VendorOptions):
    """The options of ``credentials.vendor=azure``."""

    holds_secrets: ClassVar[bool] = False

    account_name: str | None = Field(
        default=None,
        pattern=_ACCOUNT,
        description="The storage account of the tables. By default "
        "`storage.azure_storage_account_name`.",
    )
    duration_seconds: int = Field(
        default=3600,
        ge=60,
        le=_MAX_SECONDS,
        description="The lifetime of credentials in seconds. Issued credentials keep a "
        "revoked right until they expire.",
    )
    endpoint: str | None = Field(
        default=None, pattern=HTTPS_URL,
        description="The address of the account's Blob service, if it is not "
        "`https://<account_name>.blob.core.windows.net`. It is returned with the credentials.",
    )  # fmt: skip

    _has_no_slash = field_validator("endpoint")(without_slash)


class AzureVendor(Vendor):
    """Vends shared access signatures."""

    options_type = AzureOptions
    stores = frozenset({"az"})
    options: AzureOptions

    def __init__(self, options: AzureOptions, storage: Mapping[str, str]) -> None:
        super().__init__(options, storage)
        extras.require("vend-azure", "azure.identity", "azure.storage.filedatalake")
        from .azure_sas import DelegationKeys  # noqa: PLC0415 - needs the extra

        own = options_of_store(storage, "azure")
        account = options.account_name or own.get("account_name")
        if not account:
            raise ValueError("set account_name: storage.azure_storage_account_name has none")
        self._account = account
        self._keys = DelegationKeys(
            options.endpoint or f"https://{account}.blob.core.windows.net",
            {key: own[key] for key in _OWN if key in own},
        )

    def vend(self, grant: Grant) -> Mapping[str, str]:
        """Return a signature that is limited to the grant."""
        from .azure_sas import directory_signature  # noqa: PLC0415 - needs the extra

        what = f"credentials for table '{display(grant.table)}'"
        if grant.account not in (None, self._account):
            raise PermissionDeniedError(
                f"No {what}: it is in the storage account '{grant.account}', and the vendor is for "
                f"'{self._account}'"
            )
        key, expires = self._keys.get(self.options.duration_seconds, what)
        signature = directory_signature(key, self._account, grant, expires)
        vended = {
            "azure_storage_account_name": self._account,
            "azure_storage_sas_token": signature,
        }
        if self.options.endpoint:
            vended["azure_storage_endpoint"] = self.options.endpoint
        return expiring_options(vended, expires.timestamp())

"""What a user delegation SAS may do, as a real blob storage enforces it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import lance
import pyarrow as pa
import pytest
from azure.core.credentials import AccessToken
from azure.storage.blob import BlobServiceClient, ContainerSasPermissions, generate_container_sas
from servers.object_stores import ACCOUNT, AzuriteServer, needs_azurite, oauth_token

pytestmark = [pytest.mark.slow, needs_azurite, pytest.mark.spec("common.md#limits-of-vendors")]

ROWS = pa.table({"id": range(3)})
CONTAINER, TABLE = "lake", "films.db/t.lance"
LOCATION = f"az://{CONTAINER}/{TABLE}"
HOUR = timedelta(hours=1)


class Owner:
    """The vendor's own identity."""

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:  # noqa: ARG002 - of the SDK
        """Return a token that is good for an hour."""
        return AccessToken(oauth_token(), int(now().timestamp()) + 3600)


def now() -> datetime:
    return datetime.now(timezone.utc)


@pytest.fixture(scope="module")
def azurite() -> Iterator[AzuriteServer]:
    """A blob storage with a container."""
    with AzuriteServer() as server:
        yield server


@pytest.fixture(scope="module")
def owner(azurite: AzuriteServer) -> BlobServiceClient:
    """A client that may do anything."""
    client = BlobServiceClient(
        azurite.endpoint, credential=Owner(), connection_verify=str(azurite.authority.path)
    )
    client.create_container(CONTAINER)
    client.create_container("other")
    return client


@pytest.fixture(scope="module")
def key(owner: BlobServiceClient) -> Any:
    """A user delegation key."""
    return owner.get_user_delegation_key(now() - HOUR, now() + HOUR)


def container_sas(key: Any, *, expiry: timedelta = HOUR, **allowed: bool) -> str:
    return str(
        generate_container_sas(
            ACCOUNT,
            CONTAINER,
            user_delegation_key=key,
            permission=ContainerSasPermissions(**allowed),
            start=now() - HOUR,
            expiry=now() + expiry,
        )
    )


def options_of(azurite: AzuriteServer, sas: str) -> dict[str, str]:
    return {**azurite.storage_options, "azure_storage_sas_token": sas}


def append(options: dict[str, str], location: str = LOCATION) -> None:
    lance.write_dataset(ROWS, location, mode="append", storage_options=options)


def count(options: dict[str, str], location: str = LOCATION) -> int:
    return lance.dataset(location, storage_options=options).count_rows()


def test_a_sas_allows_what_it_says_in_its_container(azurite: AzuriteServer, key: Any) -> None:
    writer = options_of(
        azurite, container_sas(key, read=True, list=True, write=True, create=True, delete=True)
    )
    append(writer)
    reader = options_of(azurite, container_sas(key, read=True, list=True))
    assert count(reader) == 3
    with pytest.raises(OSError, match="403 Forbidden"):
        append(reader)
    with pytest.raises(OSError, match="403 Forbidden"):
        append(writer, "az://other/t.lance")
    ended = container_sas(key, read=True, list=True, expiry=-timedelta(seconds=1))
    with pytest.raises(ValueError, match="403 Forbidden"):
        count(options_of(azurite, ended))

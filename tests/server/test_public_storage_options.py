"""Which storage options clients get: public ones, and credentials for the one table."""

from __future__ import annotations

from typing import Any

import lance_namespace as api
import pytest
from lance_namespace import LanceNamespace
from lance_namespace.errors import InvalidInputError

from lance_bridge.storage_options import option_names, public_only
from lance_bridge_server.catalogs import connect_catalogs
from lance_bridge_server.configuration.settings import ServerSettings

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#storage-options-in-responses")]

STORAGE = {
    "storage.aws_region": "eu-1",
    "storage.endpoint": "http://s3.local",
    "storage.aws_secret_access_key": "hidden-1",
    "storage.aws_access_key_id": "hidden-2",
    "storage.timeout": "5s",
}


class OtherNamespace(LanceNamespace):
    """A namespace of another library, which answers with all options that it has."""

    def __init__(self, **properties: str) -> None:
        stored = {key: value for key, value in properties.items() if key.startswith("storage.")}
        self._options = {key.removeprefix("storage."): value for key, value in stored.items()}

    def namespace_id(self) -> str:
        return "other"

    def declare_table(self, request: api.DeclareTableRequest) -> api.DeclareTableResponse:  # noqa: ARG002 - of the trait
        return api.DeclareTableResponse(storage_options=self._options)

    def batch_commit_tables(self, request: Any) -> api.BatchCommitTablesResponse:
        result = api.CommitTableResult(declare_table=self.declare_table(request))
        return api.BatchCommitTablesResponse(results=[result])


IMPL = f"{__name__}.OtherNamespace"


def declared(settings: dict[str, Any], **properties: Any) -> Any:
    """Return the storage options that a catalog's table is declared with."""
    entry = {"impl": IMPL, **STORAGE, **properties}
    known = ServerSettings.model_validate({"catalogs": {"c": entry}, **settings})
    namespace: Any = connect_catalogs(known, {})["c"]
    table = api.DeclareTableRequest(id=["t"])
    batch = namespace.batch_commit_tables(api.BatchCommitTablesRequest(operations=[]))
    answer = namespace.declare_table(table)
    assert batch.results[0].declare_table.storage_options == answer.storage_options
    return answer.storage_options


def test_regions_and_endpoints_are_public() -> None:
    found = declared({})
    assert found == {"aws_region": "eu-1", "endpoint": "http://s3.local"}


def test_the_configuration_names_what_is_public() -> None:
    assert declared({"public_storage_options": ["aws_timeout"]}) == {"timeout": "5s"}


def test_nothing_may_be_public() -> None:
    assert declared({"public_storage_options": []}) is None


@pytest.mark.parametrize("option", ["aws_secret_access_key", "access_key_id", "sas", "unheard_of"])
def test_a_credential_is_never_public(option: str) -> None:
    with pytest.raises(ValueError, match="may be a credential"):
        ServerSettings.model_validate({"catalogs": {"c": {}}, "public_storage_options": [option]})


def test_a_catalog_has_its_own_list() -> None:
    uri = {"impl": "hive", "uri": "thrift://127.0.0.1:1"}
    own = {"credentials.public-options": "region, endpoint"}
    known = ServerSettings.model_validate({"catalogs": {"one": uri, "two": {**uri, **own}}})
    catalogs: Any = connect_catalogs(known, {})
    lists = [each.connection.config.public_options for each in catalogs.values()]
    assert option_names(lists[0]) == set(known.public_storage_options)
    assert option_names(lists[1]) == {"region", "endpoint"}
    secret = {"credentials.public-options": "aws_session_token"}
    bad = ServerSettings.model_validate({"catalogs": {"c": {**uri, **secret}}})
    with pytest.raises(InvalidInputError, match="may be a credential"):
        connect_catalogs(bad, {})


def test_a_federation_in_a_catalog_hands_out_no_credentials() -> None:
    inner = {f"catalog.files.{key}": value for key, value in STORAGE.items()}
    inner["catalog.files.impl"] = IMPL
    known = ServerSettings.model_validate({"catalogs": {"all": {"impl": "federated", **inner}}})
    namespace = connect_catalogs(known, {})["all"]
    answer = namespace.declare_table(api.DeclareTableRequest(id=["files", "t"]))
    assert answer.storage_options == {"aws_region": "eu-1", "endpoint": "http://s3.local"}


def test_the_store_may_be_named_in_front() -> None:
    options = {"AWS_REGION": "1", "region": "2", "azure_storage_account_name": "3", "token": "4"}
    assert public_only(options, option_names("region, account_name")) == {
        key: value for key, value in options.items() if key != "token"
    }

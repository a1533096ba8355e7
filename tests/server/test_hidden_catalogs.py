"""Catalogs of a federation that a principal may not see, some of which do not answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from federated.recording import Broken
from lance_namespace.errors import ServiceUnavailableError
from server.operation_requests import request_for
from server.policies import cedar, clients, declare, memory_namespace

from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.operations import OPERATIONS, Operation

POLICIES = """
permit(principal == User::"ann", action, resource in Namespace::"prod");
permit(principal == User::"owner", action, resource);
"""

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def vault() -> Broken:
    return Broken(ServiceUnavailableError("vault.internal:9083 refused the connection"))


@pytest.fixture(scope="module")
def client_of(vault: Broken, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    directory = tmp_path_factory.mktemp("federation")
    inner = memory_namespace(directory)
    declare(inner, "open.t")
    federated = FederatedNamespace({"prod": inner, "spare": inner, "vault": vault})
    with clients(federated, cedar(directory, POLICIES)) as client_of:
        yield client_of


def answer(response: Any, catalog: str) -> tuple[int, str]:
    content = response.json() if response.content else {}
    content.pop("context", None)
    text = str(content).replace(catalog, "CATALOG")
    return response.status_code, text


@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if each.has_id],
    ids=lambda each: each.path,
)
@pytest.mark.parametrize("names", [[], ["db"], ["db", "t"], ["a", "b", "c"], ["d b", "t"]], ids=str)
def test_a_hidden_catalog_answers_as_one_that_does_not_exist(
    client_of: Any, vault: Broken, operation: Operation, names: list[str]
) -> None:
    expected = answer(client_of("ann")(**request_for(operation, ["absent", *names])), "absent")
    for hidden in ("spare", "vault"):
        found = client_of("ann")(**request_for(operation, [hidden, *names]))
        assert answer(found, hidden) == expected
    assert vault.asked == 0


def test_listings_do_not_name_a_hidden_catalog_that_does_not_answer(client_of: Any) -> None:
    assert client_of("ann")("GET", "/v1/table").json() == {"tables": ["prod$open$t"]}
    found = client_of("owner")("GET", "/v1/table").json()
    assert list(found["context"]) == ["unavailable.vault"]


@pytest.mark.parametrize("names", [["x"] * 33, ["x" * 8193]], ids=["names", "characters"])
@pytest.mark.parametrize("user", ["ann", "owner"])
def test_an_identifier_that_no_catalog_has_is_not_decided_on(
    client_of: Any, user: str, names: list[str]
) -> None:
    """A decision on thousands of names would take minutes and gigabytes."""
    version = {"version": 1, "manifest_path": "m"}
    requests = [
        ("version/batch-create", {"entries": [{"id": names, **version}]}),
        ("batch-commit", {"operations": [{"declare_table": {"id": names}}]}),
        ("prod$open$t/rename", {"new_namespace_id": names, "new_table_name": "t"}),
    ]
    for path, body in requests:
        response = client_of(user)("POST", f"/v1/table/{path}", json=body)
        assert (response.status_code, response.json()["code"]) == (400, 13), response.text
    response = client_of(user)("POST", f"/v1/namespace/{'$'.join(names)}/describe", json={})
    assert (response.status_code, response.json()["code"]) == (400, 13), response.text

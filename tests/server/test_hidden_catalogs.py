"""Catalogs of a federation that a principal may not see, some of which do not answer."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from federated.recording import Broken
from lance_namespace.errors import ServiceUnavailableError
from server.http_requests import request_for
from server.policies import cedar, clients, declare, memory_namespace

from lance_bridge.paging import encode_token
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.operations import OPERATIONS, Operation
from lance_bridge_server.public_answers import PublicAnswers

POLICIES = """
permit(principal == User::"ann", action, resource in Namespace::"prod");
permit(principal == User::"owner", action, resource);
"""

pytestmark = [pytest.mark.servers, pytest.mark.spec("server.md#hidden-objects")]


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


@pytest.mark.parametrize("prefix", [(), ("all",)], ids=["as the root", "in a federation"])
def test_a_hidden_catalog_of_a_served_federation_answers_alike(
    tmp_path: Path, prefix: tuple[str, ...]
) -> None:
    """A catalog with impl=federated is inside the object that removes private options."""

    def connect() -> Any:
        raise ServiceUnavailableError("vault.internal:9083 refused the connection")

    federation = FederatedNamespace({"prod": memory_namespace(tmp_path), "vault": connect})
    served: Any = PublicAnswers(federation, ())
    if prefix:
        served = FederatedNamespace({"all": served})
    seen = POLICIES.replace('"prod"', '"' + ".".join((*prefix, "prod")) + '"')
    with clients(served, cedar(tmp_path, seen)) as client_of:
        for operation in (each for each in OPERATIONS if each.has_id):
            absent = request_for(operation, [*prefix, "absent", "db", "t"])
            hidden = request_for(operation, [*prefix, "vault", "db", "t"])
            found = answer(client_of("ann")(**hidden), "vault")
            assert found == answer(client_of("ann")(**absent), "absent"), operation.name


def test_listings_do_not_name_a_hidden_catalog_that_does_not_answer(client_of: Any) -> None:
    assert client_of("ann")("GET", "/v1/table").json() == {"tables": ["prod$open$t"]}
    found = client_of("owner")("GET", "/v1/table").json()
    assert list(found["context"]) == ["unavailable.vault"]


HIDDEN = ("attic", "hall", "quiet")


@pytest.fixture
def send(tmp_path: Path) -> Iterator[Any]:
    """Requests of one who may see some of the catalogs, with more below one of them."""
    inner = memory_namespace(tmp_path)
    declare(inner, "open.t")
    down = Broken(ServiceUnavailableError("refused the connection"))
    nest = FederatedNamespace({"attic": down, "hall": inner, "loft": inner, "yard": inner})
    federated = FederatedNamespace(
        {"attic": down, "nest": nest, "prod": inner, "quiet": inner, "shop": inner}
    )
    text = """permit(principal, action, resource)
        when { resource in Namespace::"nest.loft" || resource in Namespace::"nest.yard"
            || resource in Namespace::"prod" || resource in Namespace::"shop" };"""
    with clients(federated, cedar(tmp_path, text)) as client_of:

        def send(token: str | None) -> Any:
            params = {"limit": "1", **({"page_token": token} if token else {})}
            response = client_of("ann")("GET", "/v1/table", params=params)
            assert response.status_code == 200, response.text
            return response.json()

        yield send


def texts_in(token: str) -> Iterator[str]:
    """Yield the texts in a page token, and in those that it holds."""
    try:
        content = json.loads(base64.urlsafe_b64decode(token))
    except ValueError:
        return
    for each in content:
        if isinstance(each, str):
            yield each
            yield from texts_in(each)


def test_page_tokens_name_no_hidden_catalog(send: Any) -> None:
    found, token = [], None
    while True:
        page = send(token)
        found += page["tables"]
        assert "context" not in page
        if not (token := page.get("page_token")):
            break
        assert not set(HIDDEN) & set(texts_in(token))
    assert found == ["nest$loft$open$t", "nest$yard$open$t", "prod$open$t", "shop$open$t"]


@pytest.mark.parametrize("inner", ["", "x", encode_token("all tables", ("open", "s"))])
def test_a_changed_page_token_does_not_say_that_a_catalog_exists(send: Any, inner: str) -> None:
    scope = "all tables of all catalogs"
    for hidden, absent in (("attic", "basement"), ("quiet", "q"), ("hall", "h")):
        tokens = [encode_token(scope, (name, inner, name)) for name in (hidden, absent)]
        if hidden == "hall":
            tokens = [encode_token(scope, ("nest", each)) for each in tokens]
        answers = [send(each) for each in tokens]
        assert answers[0] == answers[1]


@pytest.mark.spec("server.md#requests")
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

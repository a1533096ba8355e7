"""ListAllTables over several catalogs, some of which do not answer."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

import lance_namespace as api
import pytest
from core.memory_catalog import MemoryNamespace
from lance_namespace import errors

from lance_bridge.testing.calls import Calls, collect, pages
from lance_bridge_federated import FederatedNamespace

from .conftest import add_tables
from .recording import Broken, Recorder

pytestmark = [pytest.mark.quick, pytest.mark.spec("federated.md#listalltables")]

DOWN = errors.ServiceUnavailableError("connection refused, password=hush")
IN_MEMORY = ["eu.shop.sales.a", "eu.shop.sales.b", "us.shop.sales.a"]
IN_DIRECTORY = ["top", "db.a", "db.b", "db.deep.c", "e.x"]
ALL = [
    *(f"files${name.replace('.', '$')}" for name in IN_DIRECTORY),
    *(f"prod${name.replace('.', '$')}" for name in IN_MEMORY),
]
"""By catalog; a directory's are by namespace."""


@pytest.fixture
def prod(memory: MemoryNamespace) -> MemoryNamespace:
    add_tables(memory, *IN_MEMORY)
    return memory


@pytest.fixture
def files(directory: api.LanceNamespace) -> api.LanceNamespace:
    add_tables(directory, *IN_DIRECTORY)
    return directory


@pytest.fixture
def both(prod: MemoryNamespace, files: api.LanceNamespace) -> FederatedNamespace:
    return FederatedNamespace({"prod": prod, "files": files})


def list_all(namespace: api.LanceNamespace, limit: int | None = None, **more: Any) -> list[str]:
    return collect(Calls(namespace).list_all_tables, "tables", limit, **more)


def test_all_tables_of_all_catalogs_are_listed_at_once_and_in_pages_of_any_size(
    both: FederatedNamespace,
) -> None:
    answer = both.list_all_tables(api.ListTablesRequest())
    assert (answer.tables, answer.context) == (ALL, None)
    for limit in range(1, len(ALL) + 2):
        assert list_all(both, limit) == ALL


def test_a_table_dropped_or_created_between_pages_hides_no_other(
    both: FederatedNamespace, prod: MemoryNamespace, files: api.LanceNamespace
) -> None:
    found: list[str] = []
    for names, _ in pages(Calls(both).list_all_tables, "tables", 1):
        found += names
        if names == ["files$db$a"]:
            files.drop_table(api.DropTableRequest(id=["db", "a"]))
            add_tables(files, "aa.first", "db.c")
        if names == ["prod$eu$shop$sales$a"]:
            prod.drop_table(api.DropTableRequest(id=["eu", "shop", "sales", "b"]))
    expected = [*ALL[:3], "files$db$c", *ALL[3:]]
    expected.remove("prod$eu$shop$sales$b")
    assert found == expected


def test_a_catalog_that_is_gone_from_the_configuration_ends_no_listing(
    both: FederatedNamespace, prod: MemoryNamespace
) -> None:
    token = both.list_all_tables(api.ListTablesRequest(limit=2)).page_token
    assert list_all(FederatedNamespace({"prod": prod}), 2, token=token) == ALL[5:]


@pytest.mark.parametrize("limit", [None, 1, 2, 3, 100])
def test_a_catalog_that_is_down_is_named_on_every_page_from_then_on(
    limit: int | None, prod: MemoryNamespace, files: api.LanceNamespace
) -> None:
    catalogs = {"aws": Broken(DOWN), "files": files, "lake": Broken(DOWN), "prod": prod}
    listing = Calls(FederatedNamespace(catalogs)).list_all_tables
    found: list[str] = []
    token = None
    while True:
        answer = listing(limit=limit, page_token=token)
        found += answer.tables
        assert answer.context is not None
        assert answer.context["unavailable.aws"]
        if any(name.startswith("prod$") for name in answer.tables):
            assert answer.context["unavailable.lake"]
        token = answer.page_token
        if not token:
            break
    assert found == ALL
    assert set(answer.context) == {"unavailable.aws", "unavailable.lake"}
    assert [catalogs["aws"].asked, catalogs["lake"].asked] == [1, 1]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (DOWN, "SERVICE_UNAVAILABLE (17): connection refused"),
        (errors.PermissionDeniedError("no"), "PERMISSION_DENIED (15): no (in aws)"),
        (errors.NamespaceNotFoundError("no root"), "NAMESPACE_NOT_FOUND (1)"),
        (RuntimeError("odd"), "INTERNAL (18): list_all_tables failed with RuntimeError: odd"),
    ],
)
def test_any_failure_of_a_catalog_is_named_with_its_code_and_no_secret_until_it_answers_again(
    error: Exception, reason: str, prod: MemoryNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    namespace = FederatedNamespace({"aws": prod})
    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(prod, "list_all_tables", Broken(error).list_all_tables)
        answer = namespace.list_all_tables(api.ListTablesRequest())
    assert answer.tables == []
    [(key, given)] = (answer.context or {}).items()
    assert key == "unavailable.aws"
    assert given.startswith(reason)
    assert "'aws'" in caplog.text
    assert "hush" not in given + caplog.text
    answer = namespace.list_all_tables(api.ListTablesRequest())
    assert (len(answer.tables), answer.context) == (len(IN_MEMORY), None)


def test_a_catalog_that_fails_half_way_keeps_what_it_gave(files: api.LanceNamespace) -> None:
    class HalfWay(Recorder):
        def list_all_tables(self, request: api.ListTablesRequest) -> api.ListTablesResponse:
            if request.page_token:
                raise DOWN
            return api.ListTablesResponse(tables=["db$a"], page_token="2")

    namespace = FederatedNamespace({"aws": HalfWay(), "files": files})
    answer = namespace.list_all_tables(api.ListTablesRequest())
    assert answer.tables == ["aws$db$a", *ALL[:5]]
    assert set(answer.context or {}) == {"unavailable.aws"}


def test_a_catalog_whose_pages_do_not_end_is_left(files: api.LanceNamespace) -> None:
    class Endless(Recorder):
        def list_all_tables(self, _request: Any) -> api.ListTablesResponse:
            return api.ListTablesResponse(tables=["db$a"], page_token="again")

    namespace = FederatedNamespace({"aws": Endless(), "files": files})
    answer = namespace.list_all_tables(api.ListTablesRequest())
    assert answer.tables[-5:] == ALL[:5]
    assert "repeats itself" in (answer.context or {})["unavailable.aws"]


def test_a_federation_within_one_names_what_it_left_out() -> None:
    inner = FederatedNamespace({"aws": Broken(DOWN)})
    answer = FederatedNamespace({"inner": inner}).list_all_tables(api.ListTablesRequest())
    assert set(answer.context or {}) == {"unavailable.inner.aws"}


def test_a_catalog_that_lists_one_namespace_only_is_walked(files: api.LanceNamespace) -> None:
    class Other(api.LanceNamespace):
        def namespace_id(self) -> str:
            return "other"

        def list_tables(self, request: api.ListTablesRequest) -> api.ListTablesResponse:
            return files.list_tables(request)

        def list_namespaces(self, request: api.ListNamespacesRequest) -> Any:
            return files.list_namespaces(request)

    with pytest.raises(errors.UnsupportedOperationError):
        Other().list_all_tables(api.ListTablesRequest())
    assert list_all(FederatedNamespace({"files": Other()}), 2) == ALL[:5]


def test_declared_tables_are_left_out_where_asked(
    both: FederatedNamespace, prod: MemoryNamespace, files: api.LanceNamespace
) -> None:
    for namespace, id in ((prod, ["eu", "shop", "sales", "x"]), (files, ["db", "x"])):
        namespace.declare_table(api.DeclareTableRequest(id=id))
    assert set(list_all(both)) - set(ALL) == {"files$db$x", "prod$eu$shop$sales$x"}
    assert list_all(both, 3, include_declared=False) == ALL


def token_of(*content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode()


def test_a_token_that_this_listing_did_not_give_is_invalid_input(
    both: FederatedNamespace, prod: MemoryNamespace
) -> None:
    listing = Calls(both).list_all_tables
    token = listing(limit=1).page_token or ""
    version, scope, catalog, own = json.loads(base64.urlsafe_b64decode(token))
    foreign = [
        "nonsense",
        token[:-4],
        both.list_namespaces(api.ListNamespacesRequest(limit=1)).page_token,
        prod.list_all_tables(api.ListTablesRequest(limit=1)).page_token,
        token_of(version + 1, scope, catalog, own),
        token_of(version, scope, catalog),
        token_of(version, scope, catalog, "of no catalog"),
        token_of(version, scope, "prod", own),
        token_of(version, scope, catalog, own, *["a"] * 1000),
    ]
    for bad in foreign:
        with pytest.raises(errors.InvalidInputError, match="page_token"):
            listing(limit=1, page_token=bad)


@pytest.mark.parametrize(
    ("request_", "problem"),
    [({"limit": 0}, "limit"), ({"limit": -1}, "limit"), ({"id": ["prod"]}, "use ListTables")],
)
def test_a_bad_limit_and_an_identifier_are_invalid_input(
    request_: dict[str, Any], problem: str, prod: MemoryNamespace
) -> None:
    with pytest.raises(errors.InvalidInputError, match=problem):
        FederatedNamespace({"prod": prod}).list_all_tables(api.ListTablesRequest(**request_))

"""The gateway keeps to the conformance kit, alone and in a federation."""

from __future__ import annotations

import inspect
import io
import json
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import lance_namespace as api
import pyarrow as pa
import pytest
from conformance.glue_target import GlueOnDiskTarget
from conformance.hive_target import hive_target
from conformance.memory_suite import MemoryTarget
from conformance.test_directory import DirectoryTarget
from conformance.test_federated import CombinationSuite, FederatedTarget
from conformance.unity_target import UnityTarget
from lance.namespace import RestNamespace
from lance_namespace import LanceNamespace
from lance_namespace.errors import UnsupportedOperationError, from_error_code
from lance_namespace_urllib3_client import ApiClient, Configuration, TableApi, TransactionApi
from lance_namespace_urllib3_client.exceptions import ApiException
from pydantic import BaseModel
from server.authenticated import serve
from server.gateways import serve_namespace
from servers.glue_server import GlueServer
from servers.http_proxy import HttpProxy
from servers.metastores import Metastores
from servers.unity import OPEN_SOURCE_0_6, UnityServer

from lance_bridge.testing import EntrySuite, RequestSuite, Target
from lance_bridge.testing.calls import ipc, request_model
from lance_bridge.testing.concurrency import ConcurrencyCases
from lance_bridge.testing.data import EveryOperationCases
from lance_bridge.testing.requests import NAMESPACE_OPERATIONS, TABLE_OPERATIONS
from lance_bridge.testing.restart import RestartCases

pytestmark = pytest.mark.quick

DEVIATIONS = {
    "test_a_pickled_client_answers_the_same": "pylance's client cannot be pickled",
    "test_a_null_namespace_identifier_is_the_root": "pylance's client sends no request without id",
    "test_a_mapping_without_what_the_operation_needs_is_invalid_input": (
        "pylance's client raises a TypeError before it sends such a request"
    ),
    "test_a_name_that_no_transaction_can_have_is_refused": (
        "pylance's client writes a space in a path as +"
    ),
    "test_an_empty_table_is_a_declared_one": (
        "the specification has no route for CreateEmptyTable, which it has deprecated"
    ),
    "test_absent_operations_are_unsupported[create_materialized_view]": (
        "pylance's client raises an Exception for a request without a view"
    ),
}
"""What pylance's client does differently whatever the server answers."""
ONE_LEVEL = {
    "test_a_hostile_namespace_name_is_invalid_input[list_tables]": (
        "pylance's client takes the names . and .. out of the URL"
    ),
}
"""The same where a namespace has one name, which is all of its identifier."""
Makers = Mapping[str, Callable[[], Target]]


class Client(RestNamespace):
    """pylance's client. What its Python class lacks goes through the client of the specification.

    It lacks three operations, loses the actions of AlterTransaction, and takes three requests only
    as mappings.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(uri=uri)  # type: ignore[no-untyped-call]  # pylance has no types
        client = ApiClient(Configuration(host=uri))
        self._generated, self._transactions = TableApi(client), TransactionApi(client)

    def create_table_version(self, request: Any) -> Any:
        answer = super().create_table_version(request.model_dump())
        return api.CreateTableVersionResponse.from_dict(answer)

    def batch_delete_table_versions(self, request: Any) -> Any:
        answer = super().batch_delete_table_versions(request.model_dump())
        return api.BatchDeleteTableVersionsResponse.from_dict(answer)

    def describe_table_version(self, request: Any) -> Any:
        answer = super().describe_table_version(request.model_dump())
        return api.DescribeTableVersionResponse.from_dict(answer)

    def alter_transaction(self, request: Any) -> Any:
        with _translate_errors():
            return self._transactions.alter_transaction(_joined(request.id), request)

    def batch_create_table_versions(self, request: Any) -> Any:
        with _translate_errors():
            return self._generated.batch_create_table_versions(request)

    def batch_commit_tables(self, request: Any) -> Any:
        with _translate_errors():
            return self._generated.batch_commit_tables(request)

    def update_field_metadata(self, request: Any) -> Any:
        with _translate_errors():
            return self._generated.update_field_metadata(_joined(request.id), request)


def _joined(names: list[str] | None) -> str:
    return "$".join(names or []) or "$"


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except ApiException as error:
        found = json.loads(error.body or "")
        raise from_error_code(found["code"], found["error"]) from error


@contextmanager
def over_rest(target: Target, suite: type) -> Iterator[Target]:
    """Serve the namespace of a target, and have its clients connect to the gateway.

    It keeps its features but one: no client of a gateway may repeat a declaration at once.

    Args:
        suite: The class of the cases that run.
    """
    namespace: Any = target.connect()
    with serve_namespace(namespace) as url:
        target.features = replace(target.features, declare_again=False)
        target.connect = lambda: Client(url)  # type: ignore[method-assign]
        known = DEVIATIONS if target.parent else {**DEVIATIONS, **ONE_LEVEL}
        known = {case: why for case, why in known.items() if hasattr(suite, case.split("[")[0])}
        target.deviations = {**target.deviations, **known}
        yield target
    namespace.close()


class TestMemory(EntrySuite, RequestSuite, EveryOperationCases):
    """All cases of one client. All fields of requests are below."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
        with over_rest(MemoryTarget(tmp_path_factory.mktemp("memory")), cls) as target:
            yield target


# -- whole requests --------------------------------------------------------------------------------


TABLE = ["films", "t"]
ROWS = pa.table({"id": [1, 2]})
VALUES: dict[str, Any] = {
    **{"id": TABLE, "new_namespace_id": TABLE[:1]},
    **{"mode": "Overwrite", "timeout": "30s"},
}
"""Fields whose values are not any of their type."""
OURS = ("context", "identity", "replace", "storage_options")
"""Fields that the gateway sets, or does not pass on."""
NOT_IN_REST = {"update_table_schema_metadata": "transaction_id"}
"""Fields of answers for which the specification of REST has no place."""
PLAIN: dict[Any, Any] = {
    str: "text", int: 2, float: 0.5, bool: True, datetime: datetime(2026, 1, 2, tzinfo=timezone.utc)
}  # fmt: skip


def filled(kind: Any, name: str = "", around: tuple[Any, ...] = ()) -> Any:
    """Return a value of a type; of a model, one with a value in every field.

    Args:
        around: The models that the value is inside of. In one of them, it has only the first field
            and those that are required.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if name in VALUES:
        return VALUES[name]
    if origin in (typing.Union, types.UnionType, typing.Annotated):
        return filled(arguments[0], name, around)
    if origin in (list, dict):
        each = filled(arguments[-1], "", around)
        several = [each, "other" if each == "text" else each]
        return several * (each is not None) if origin is list else {"key": each}
    if not (inspect.isclass(kind) and issubclass(kind, BaseModel)):
        return PLAIN.get(kind, "text")
    if around.count(kind) == 2:
        return None
    inside = (*around, kind)
    fields = {
        each: filled(about.annotation, each, inside)
        for number, (each, about) in enumerate(kind.model_fields.items())
        if kind not in around or number == 0 or about.is_required()
    }
    return kind.model_construct(**{n: v for n, v in fields.items() if n not in OURS})


@dataclass
class Recorder:
    """A namespace that answers every operation with a whole answer, and keeps the call."""

    calls: list[tuple[str, Any, Any]] = field(default_factory=list)
    answer: Any = None

    def __getattr__(self, name: str) -> Any:
        if name not in vars(LanceNamespace):
            raise AttributeError(name)

        def call(request: Any, *rows: Any) -> Any:
            self.calls.append((name, request, rows))
            self.answer = answer_of(name)
            return self.answer

        return call


def answer_of(operation: str) -> Any:
    kind = typing.get_type_hints(getattr(LanceNamespace, operation))["return"]
    if operation == "query_table":
        sink = io.BytesIO()
        with pa.ipc.new_file(sink, ROWS.schema) as writer:
            writer.write_table(ROWS)
        return sink.getvalue()
    return filled(kind)


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(scope="module")
def client(recorder: Recorder) -> Iterator[Client]:
    namespace: Any = recorder
    with serve_namespace(namespace) as url:
        yield Client(url)


def fields_of(model: Any) -> Any:
    return {k: v for k, v in model.model_dump(exclude_none=True).items() if k not in OURS}


@pytest.mark.parametrize("operation", [*TABLE_OPERATIONS, *NAMESPACE_OPERATIONS])
def test_a_request_arrives_whole_and_the_answer_returns(
    client: Client, recorder: Recorder, operation: str
) -> None:
    request = filled(request_model(operation))
    takes = "request_data" in inspect.signature(getattr(LanceNamespace, operation)).parameters
    answer = getattr(client, operation)(request, *([ipc(ROWS)] if takes else []))
    name, seen, _ = recorder.calls[-1]
    assert (name, fields_of(seen)) == (operation, fields_of(request))
    given = recorder.answer
    if operation == "query_table":
        assert pa.ipc.open_file(answer.data).read_all() == ROWS
    elif isinstance(given, BaseModel):
        lost = {NOT_IN_REST.get(operation)}
        assert fields_of(answer) == {k: v for k, v in fields_of(given).items() if k not in lost}
    else:
        assert answer == given


# -- another library's catalog ---------------------------------------------------------------------


LACKS = sorted(DirectoryTarget.features.absent - {"create_empty_table"})
"""Operations with a route that pylance's directory does not have."""
SENT_WHOLE = "the client sends no request that has only an identifier"
WITH_GATEWAY: dict[str, str] = {
    f"test_absent_operations_are_unsupported[{name}]": SENT_WHOLE
    for name in {*LACKS} - {"refresh_materialized_view"}
}
"""What deviates in another way behind a gateway."""
CHECKED_BY_GATEWAY = (
    "test_a_failed_create_table_can_be_repeated",
    "test_absent_operations_are_unsupported",
    "test_a_listing_with_a_bad_token_is_invalid_input",
    "test_a_table_operation_without_an_identifier_is_invalid_input",
    "test_create_table_from_a_stream_without_rows_makes_an_empty_table",
    "test_data_of_a_declared_table_is_invalid_table_state",
    "test_data_of_a_missing_table_is_table_not_found",
)
"""Cases that deviate without a gateway only."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectoryTarget]:
    """A directory in the installed program, as the pages start it, whose queries have processes."""
    target = DirectoryTarget(tmp_path_factory.mktemp("directory"))
    with serve("--catalog", f"{TABLE[0]}=dir:root={target.data_root}", "--port", "0") as program:
        target.parent = TABLE[:1]
        target.connect = lambda: Client(program.url)  # type: ignore[method-assign]
        yield target


@pytest.mark.servers
@pytest.mark.spec("server.md#clients")
class TestDirectory(EntrySuite, RequestSuite, EveryOperationCases):
    """pylance's own namespace of a directory, with its known deviations."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, directory: DirectoryTarget) -> Target:
        known = {
            case: why
            for case, why in directory.deviations.items()
            if hasattr(cls, (name := case.split("[")[0])) and name not in CHECKED_BY_GATEWAY
        }
        directory.deviations = {**known, **WITH_GATEWAY}
        return directory


@pytest.mark.servers
@pytest.mark.spec("server.md#responses")
@pytest.mark.parametrize("operation", LACKS)
def test_what_a_directory_lacks_is_unsupported(directory: DirectoryTarget, operation: str) -> None:
    call = getattr(directory.connect(), operation)
    with pytest.raises(UnsupportedOperationError, match=operation):
        call(filled(request_model(operation)))


# -- what a gateway to each catalog could break: see CombinationSuite ------------------------------


@pytest.fixture(scope="module")
def makers(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Makers]:
    make: Callable[[str], Path] = tmp_path_factory.mktemp
    with (
        UnityServer(OPEN_SOURCE_0_6) as unity,
        GlueServer() as glue,
        HttpProxy(glue.endpoint) as proxy,
    ):
        yield {
            "old": lambda: hive_target("2.3", metastores, make("old")),
            "prod": lambda: hive_target("4.2", metastores, make("prod")),
            "aws": lambda: GlueOnDiskTarget(glue, proxy, make("aws")),
            "unity": lambda: UnityTarget(unity, str(make("unity"))),
        }


@pytest.fixture(scope="class", params=["alone", "federated"])
def target(request: pytest.FixtureRequest, makers: Makers) -> Iterator[Target]:
    catalog = request.cls.catalog
    if request.param == "alone":
        direct = makers[catalog]()
    else:
        direct = FederatedTarget(catalog, {name: make() for name, make in makers.items()})
    with over_rest(direct, request.cls) as target:
        yield target


@pytest.mark.slow
class TestHive23(CombinationSuite):
    """Entries that are compared under a lock."""

    catalog = "old"


@pytest.mark.slow
class TestHive42(CombinationSuite, ConcurrencyCases, RestartCases):
    """Entries that are compared by a condition; and one pool of connections for many clients."""

    catalog = "prod"


@pytest.mark.slow
class TestGlue(CombinationSuite):
    """Entries that are compared by their version."""

    catalog = "aws"


@pytest.mark.slow
class TestUnity(CombinationSuite):
    """Entries that never change, below two levels."""

    catalog = "unity"

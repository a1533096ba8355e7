"""The conformance kit, and requests with all their fields, through the gateway."""

from __future__ import annotations

import inspect
import io
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from conformance.memory_suite import MemoryTarget
from lance_namespace import LanceNamespace
from pydantic import BaseModel
from server.rest_target import Client, over_rest
from server.serving import serving_namespace

from lance_bridge.testing import EntrySuite, RequestSuite, Target
from lance_bridge.testing.build import ipc
from lance_bridge.testing.calls import request_model
from lance_bridge.testing.data_operations.every_operation import EveryOperationCases
from lance_bridge.testing.requests import NAMESPACE_OPERATIONS, TABLE_OPERATIONS

pytestmark = pytest.mark.quick


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
VALUES: dict[str, Any] = {"id": TABLE, "mode": "Overwrite", "timeout": "30s"}
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
    with serving_namespace(namespace) as url:
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

"""Queries of pylance's directory that are scans: they return what the directory itself does."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance.namespace import DirectoryNamespace
from lance_namespace import LanceNamespace, errors
from lance_namespace_urllib3_client.models import QueryTableRequestVector

import lance_bridge
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.operations import OPERATIONS
from lance_bridge_server.queries.calling import call_namespace
from lance_bridge_server.redaction import PublicAnswers

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#memory-and-speed")]

[QUERY] = (each for each in OPERATIONS if each.name == "query_table")
ROWS = pa.table({"id": range(10), "word": list("abcdefghij"), "s": [{"x": i} for i in range(10)]})
SCANS: dict[str, dict[str, Any]] = {
    "all": {},
    "some": {"k": 3, "offset": 2},
    "empty vector": {"vector": {"single_vector": []}, "prefilter": True},
    "filter": {"filter": "id > 7"},
    "columns": {"columns": {"column_names": ["s.x", "word"]}},
    "no columns": {"columns": {"column_names": []}},
    "expressions": {"columns": {"column_aliases": {"twice": "id * 2"}}},
    "row ids": {"columns": {"column_names": ["word"]}, "with_row_id": True},
    "version": {"version": 1},
    "nothing": {"filter": "id > 100"},
}
OTHERS: dict[str, dict[str, Any]] = {
    "search": {"k": 1, "vector": {"single_vector": [1.0, 2.0]}},
    "text": {"k": 1, "full_text_query": {"string_query": {"query": "a"}}},
    "option": {"fast_search": True},
    "branch": {"branch": "dev"},
    "missing column": {"filter": "none = 1"},
    "missing version": {"version": 9},
    "alias with a NUL": {"columns": {"column_aliases": {"a\0b": "id"}}},
    "wrong value": {"filter": "id / (id - id) = 1"},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("directory")


@pytest.fixture(scope="module")
def directory(root: Path) -> Any:
    """A directory with a table of two versions, and one whose column is a dictionary."""
    for mode in ("create", "append"):
        lance.write_dataset(ROWS, root / "t.lance", mode=mode)
        words = pa.table({"word": ROWS["word"].slice(mode == "append").dictionary_encode()})
        lance.write_dataset(words, root / "words.lance", mode=mode)
    return lance_bridge.connect("dir", {"root": str(root)})


def request(table: str = "t", **fields: Any) -> api.QueryTableRequest:
    needed = {"id": [table], "k": 0, "vector": {}}
    return api.QueryTableRequest.model_validate({**needed, **fields})


def read_query(namespace: LanceNamespace, request: api.QueryTableRequest) -> pa.Table:
    """Return the rows of a query, as the gateway asks for them."""
    found = call_namespace(namespace, QUERY, [request])
    if isinstance(found, pa.RecordBatchReader):
        return found.read_all()
    return pa.ipc.open_file(found.data).read_all()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests that a directory runs itself."""
    kept: list[Any] = []
    query = DirectoryNamespace.query_table

    def note(self: Any, request: Any) -> Any:
        kept.append(request)
        return query(self, request)

    monkeypatch.setattr(DirectoryNamespace, "query_table", note)
    return kept


@pytest.mark.parametrize("name", SCANS)
def test_a_scan_returns_what_the_directory_returns(
    directory: Any, asked: list[Any], name: str
) -> None:
    found = read_query(directory, request(**SCANS[name]))
    assert not asked
    answer = directory.query_table(request(**SCANS[name]))
    expected = pa.ipc.open_file(answer.data).read_all()
    assert found.schema.equals(expected.schema, check_metadata=True)
    assert found.combine_chunks().equals(expected.combine_chunks())


@pytest.mark.parametrize("name", OTHERS)
def test_a_directory_runs_searches_and_wrong_queries_itself(
    directory: Any, asked: list[Any], name: str
) -> None:
    with suppress(errors.LanceNamespaceError):
        read_query(directory, request(**OTHERS[name]))
    assert len(asked) == 1


def test_dictionaries_are_those_of_the_directory(directory: Any, asked: list[Any]) -> None:
    """A file has one dictionary for all of its batches."""
    found = read_query(directory, request("words"))
    assert len(asked) == 1
    assert found["word"].to_pylist() == [*"abcdefghij", *"bcdefghij"]


def test_directories_of_a_federation_are_scanned(directory: Any, asked: list[Any]) -> None:
    federation = FederatedNamespace({"files": PublicAnswers(directory, ())})
    query = request()
    query.id = ["files", "t"]
    assert read_query(federation, query).num_rows == 20
    assert not asked
    query.id = ["files", "none"]
    with pytest.raises(errors.TableNotFoundError, match="files"):
        read_query(federation, query)


def test_a_table_on_an_object_store_is_read_by_the_directory(
    directory: Any, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the directory has the storage options."""
    remote = api.DescribeTableResponse(location="s3://bucket/t.lance")
    monkeypatch.setattr(DirectoryNamespace, "describe_table", lambda *_: remote)
    vector = QueryTableRequestVector()
    query = api.QueryTableRequest(id=["t"], k=0, vector=vector)
    assert read_query(directory, query).num_rows == 20
    assert len(asked) == 1

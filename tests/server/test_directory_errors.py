"""Errors of pylance's namespace of a directory are those of lance-bridge's own catalogs.

The same wrong requests go to a directory and to the SQLite catalog of the examples, through one
gateway: both must return the same code, in a sentence that names the table.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace.errors import TableVersionNotFoundError
from server.gateways import ARROW, operation_named, request_for, serve_namespace

import lance_bridge
from lance_bridge.testing.calls import ipc
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.operations import OPERATIONS, Body

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#errors-of-a-directory")]

SQLITE_CATALOG = Path(__file__).parents[2] / "examples" / "sqlite-catalog" / "src"
CATALOGS = ("dir", "own")
OF_RUST = re.compile(
    r"LanceError|location: |Schema \{|Field \{|backtrace|\.rs\b|\b[A-Z]\w+ \{ |Namespace error"
    r"|Internal error|Invalid user input|TypeError|RuntimeError|OSError|ValueError"
)
"""What no message for users has."""
ROWS = pa.table(
    {
        "id": pa.array(range(300), pa.int64()),
        "word": ["a", "b", "c"] * 100,
        "vector": pa.array([[float(i), 1.0] for i in range(300)], pa.list_(pa.float32(), 2)),
    }
)
SCAN = {"k": 1, "vector": {}}
NEAR = {"k": 1, "vector": {"single_vector": [1.0, 2.0]}}
INSERT = {"on": "id", "when_not_matched_insert_all": True}
UPDATE = {"on": "id", "when_matched_update_all": True}


@dataclass
class Served:
    """A gateway to both catalogs, which have the table ``db.t``."""

    http: httpx.Client
    namespaces: dict[str, Any]
    numbers: Iterator[int]

    def create(self, catalog: str) -> list[str]:
        """Create a table with an index, a tag and a branch, and return its path."""
        path = ["db", f"t{next(self.numbers)}"]
        namespace = self.namespaces[catalog]
        namespace.create_table(api.CreateTableRequest(id=path), ipc(ROWS))
        namespace.create_table_index(
            api.CreateTableIndexRequest(id=path, column="id", index_type="BTREE")
        )
        namespace.create_table_tag(api.CreateTableTagRequest(id=path, tag="v1", version=1))
        namespace.create_table_branch(api.CreateTableBranchRequest(id=path, name="b1"))
        return path

    def location(self, catalog: str, path: list[str]) -> Path:
        found = self.namespaces[catalog].describe_table(api.DescribeTableRequest(id=path))
        return Path(found.location.removeprefix("file://"))

    def send(
        self, catalog: str, path: list[str], name: str, fields: dict[str, Any]
    ) -> tuple[int, str]:
        """Send a request; return the code and the message of the error, or -1."""
        operation = operation_named(name)
        index = fields.get("index", "id_idx")
        url = operation.path.replace("{id}", "$".join([catalog, *path]))
        request: dict[str, Any] = {
            "method": operation.method, "url": url.replace("{index_name}", index)
        }  # fmt: skip
        fields = {key: value for key, value in fields.items() if key not in ("index", "rows")}
        if operation.body is Body.ROWS:
            rows = ipc(ROWS)
            request |= {"content": rows, "headers": {"Content-Type": ARROW}, "params": fields}
        elif operation.body is Body.NONE:
            request["params"] = fields
        else:
            request["json"] = fields
        return answer(self.http.request(**request))


def answer(response: httpx.Response) -> tuple[int, str]:
    """Return the code and the message of an error; -1 for an answer."""
    if response.is_success:
        return -1, ""
    body = response.json()
    return body["code"], body["error"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("both")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(SQLITE_CATALOG), *sys.path])
        namespaces: dict[str, Any] = {
            "dir": lance_bridge.connect("dir", root=str(root / "dir")),
            "own": lance_bridge.connect(
                "lance_catalog_sqlite.SqliteNamespace",
                {"file": str(root / "catalog.db"), "root": str(root / "own")},
            ),
        }
        for namespace in namespaces.values():
            namespace.create_namespace(api.CreateNamespaceRequest(id=["db"]))
        with (
            serve_namespace(FederatedNamespace(namespaces)) as url,
            httpx.Client(base_url=url, timeout=60) as http,
        ):
            yield Served(http, namespaces, count())


@pytest.fixture(scope="module")
def tables(served: Served) -> dict[str, list[str]]:
    """A table in each catalog, which no wrong request changes."""
    return {catalog: served.create(catalog) for catalog in CATALOGS}


def require_readable(text: str, path: list[str]) -> None:
    """Check that a message is one sentence for users about a table of the directory."""
    assert not OF_RUST.search(text), text
    assert ".".join(["dir", *path]) in text
    assert "\n" not in text


# -- wrong requests --------------------------------------------------------------------------------


def add(name: str, expression: str | None = "1") -> dict[str, Any]:
    return {"new_columns": [{"name": name, "expression": expression}]}


def alter(path: str, **changes: Any) -> dict[str, Any]:
    return {"alterations": [{"path": path, **changes}]}


def ranges(start: int, end: int) -> dict[str, Any]:
    return {"ranges": [{"start_version": start, "end_version": end}]}


Request = tuple[str, dict[str, Any]]
WRONG: dict[tuple[str, int], list[Request]] = {
    ("missing version", 11): [
        ("restore_table", {"version": 99}),
        ("describe_table_version", {"version": 99}),
        ("describe_table", {"version": 99, "load_detailed_metadata": True}),
        ("query_table", {"version": 99, **SCAN}),
        ("count_table_rows", {"version": 99}),
        ("explain_table_query_plan", {"query": {"version": 99, **SCAN}}),
        ("analyze_table_query_plan", {"version": 99, **SCAN}),
        ("list_table_indices", {"version": 99}),
        ("describe_table_index_stats", {"version": 99}),
        ("create_table_tag", {"tag": "n", "version": 99}),
        ("update_table_tag", {"tag": "v1", "version": 99}),
        ("create_table_branch", {"name": "n", "from_version": 99}),
    ],
    ("version 0", 13): [
        ("restore_table", {"version": 0}),
        ("describe_table_version", {"version": 0}),
        ("query_table", {"version": 0, **SCAN}),
        ("create_table_tag", {"tag": "n", "version": 0}),
    ],
    ("versions that are needed", 13): [
        ("batch_delete_table_versions", ranges(0, -1)),
        ("batch_delete_table_versions", ranges(1, 2)),
        ("batch_delete_table_versions", ranges(5, 2)),
    ],
    ("missing tag", 8): [
        ("get_table_tag_version", {"tag": "no"}),
        ("update_table_tag", {"tag": "no", "version": 1}),
        ("delete_table_tag", {"tag": "no"}),
    ],
    ("existing tag", 9): [("create_table_tag", {"tag": "v1", "version": 1})],
    ("bad tag", 13): [
        ("get_table_tag_version", {"tag": ""}),
        ("get_table_tag_version", {"tag": "a b"}),
        ("update_table_tag", {"tag": "../x", "version": 1}),
        ("delete_table_tag", {"tag": "a b"}),
    ],
    ("missing branch", 22): [
        ("delete_table_branch", {"name": "no"}),
        ("create_table_branch", {"name": "n", "from_branch": "no"}),
        ("count_table_rows", {"branch": "no"}),
        ("list_table_versions", {"branch": "no"}),
    ],
    ("existing branch", 23): [("create_table_branch", {"name": "b1"})],
    ("bad branch", 13): [
        ("create_table_branch", {"name": "a b"}),
        ("create_table_branch", {"name": ""}),
        ("create_table_branch", {"name": "../x"}),
        ("create_table_branch", {"name": "main"}),
        ("delete_table_branch", {"name": "main"}),
    ],
    ("missing index", 6): [
        ("describe_table_index_stats", {"index": "no"}),
        ("drop_table_index", {"index": "no"}),
    ],
    ("existing index", 7): [
        ("create_table_index", {"column": "id", "index_type": "BTREE"}),
        ("create_table_index", {"column": "word", "index_type": "BTREE", "name": "id_idx"}),
        ("create_table_scalar_index", {"column": "id", "index_type": "BTREE"}),
    ],
    ("bad index", 13): [
        ("create_table_index", {"column": "id", "index_type": "IVF_PQ"}),
        ("create_table_index", {"column": "word", "index_type": "IVF_FLAT"}),
        ("create_table_index", {"column": "id", "index_type": "NONE"}),
        ("create_table_index", {"column": "id", "index_type": "FTS"}),
        ("create_table_index", {"column": "vector", "index_type": "IVF_PQ", "distance_type": "x"}),
        ("create_table_index", {"column": "word", "index_type": "FTS", "base_tokenizer": "x"}),
        ("create_table_index", {"column": "word", "index_type": "FTS", "language": "x"}),
        ("create_table_index", {"column": "vector", "index_type": "IVF_PQ", "num_sub_vectors": 3}),
        ("create_table_scalar_index", {"column": "vector", "index_type": "BTREE"}),
    ],
    ("missing column", 12): [
        ("update_table", {"updates": [["no", "1"]]}),
        ("update_table", {"updates": [["id", "no"]]}),
        ("update_table", {"predicate": "no = 1", "updates": [["id", "1"]]}),
        ("delete_from_table", {"predicate": "no = 1"}),
        ("query_table", {"filter": "no = 1", **SCAN}),
        ("query_table", {"columns": {"column_names": ["no"]}, **SCAN}),
        ("query_table", {"columns": {"column_aliases": {"c": "no"}}, **SCAN}),
        ("query_table", {"vector_column": "no", **NEAR}),
        (
            "query_table",
            {"full_text_query": {"string_query": {"query": "a", "columns": ["no"]}}, **SCAN},
        ),
        ("count_table_rows", {"predicate": "no = 1"}),
        ("explain_table_query_plan", {"query": {"filter": "no = 1", **SCAN}}),
        ("analyze_table_query_plan", {"filter": "no = 1", **SCAN}),
        ("create_table_index", {"column": "no", "index_type": "BTREE"}),
        ("create_table_index", {"column": "no", "index_type": "IVF_PQ"}),
        ("create_table_scalar_index", {"column": "no", "index_type": "BTREE"}),
        ("alter_table_alter_columns", alter("no", rename="x")),
        ("alter_table_alter_columns", alter("no.a", nullable=True)),
        ("alter_table_alter_columns", alter("no", data_type={"type": "int32"})),
        ("alter_table_drop_columns", {"columns": ["no"]}),
        ("alter_table_add_columns", add("n", "no + 1")),
        ("merge_insert_into_table", {**UPDATE, "on": "no"}),
        ("merge_insert_into_table", {**UPDATE, "when_matched_update_all_filt": "no = 1"}),
    ],
    ("existing column", 13): [
        ("alter_table_add_columns", add("id")),
        ("alter_table_add_columns", {"new_columns": [*add("n")["new_columns"] * 2]}),
        ("alter_table_alter_columns", alter("word", rename="id")),
    ],
    ("bad column", 13): [
        ("alter_table_add_columns", add("")),
        ("alter_table_add_columns", add("a.b")),
        ("alter_table_add_columns", add("n", None)),
        ("alter_table_alter_columns", alter("word", rename="a.b")),
    ],
    ("bad expression", 13): [
        ("update_table", {"updates": [["id", "'x'"]]}),
        ("update_table", {"updates": [["vector", "1"]]}),
        ("update_table", {"updates": [["id", "id / (id - id)"]]}),
        ("update_table", {"predicate": "id", "updates": [["id", "1"]]}),
        ("delete_from_table", {"predicate": "id"}),
        ("delete_from_table", {"predicate": "id / (id - id) = 1"}),
        ("query_table", {"filter": "id", **SCAN}),
        ("query_table", {"filter": "id = 'x'", **SCAN}),
        ("query_table", {"filter": "abs(word) = 1", **SCAN}),
        ("query_table", {"columns": {"column_aliases": {"c": "abs(word)"}}, **SCAN}),
        ("count_table_rows", {"predicate": "id"}),
        ("count_table_rows", {"predicate": "id = true"}),
        ("alter_table_add_columns", add("n", "abs(word)")),
        ("alter_table_add_columns", add("n", "id / (id - id)")),
        ("explain_table_query_plan", {"query": {"filter": "id", **SCAN}}),
        ("analyze_table_query_plan", {"filter": "id = true", **SCAN}),
        ("merge_insert_into_table", {**UPDATE, "when_matched_update_all_filt": "id = 1"}),
    ],
    ("bad type", 13): [
        ("alter_table_alter_columns", alter("id", data_type={"type": "nonsense"})),
        ("alter_table_alter_columns", alter("vector", data_type={"type": "int32"})),
        ("alter_table_alter_columns", alter("word", data_type={"type": "int32"})),
    ],
    ("bad option", 13): [
        ("insert_into_table", {"mode": "bad"}),
        ("create_table", {"mode": "bad"}),
        ("merge_insert_into_table", {"on": "id"}),
        ("merge_insert_into_table", {}),
        ("query_table", {"k": 1, "vector": {"single_vector": [1.0, 2.0, 3.0]}}),
        ("query_table", {"vector_column": "word", **NEAR}),
        ("query_table", {"distance_type": "bad", **NEAR}),
        ("query_table", {"full_text_query": {"string_query": {"query": "a"}}, **SCAN}),
    ],
    ("empty list", 13): [
        ("update_table", {"updates": []}),
        ("alter_table_drop_columns", {"columns": ["id", "word", "vector"]}),
    ],
    ("existing table", 5): [("declare_table", {}), ("create_table", {})],
}  # fmt: skip


@pytest.mark.parametrize(
    ("code", "name", "fields"),
    [
        pytest.param(code, *request, id=f"{kind}-{request[0]}-{number}".replace(" ", "-"))
        for (kind, code), requests in WRONG.items()
        for number, request in enumerate(requests)
    ],
)
def test_a_wrong_request_has_the_same_error_in_both_catalogs(
    served: Served, tables: dict[str, list[str]], code: int, name: str, fields: dict[str, Any]
) -> None:
    found = {each: served.send(each, tables[each], name, fields) for each in CATALOGS}
    assert {each: of for each, (of, _) in found.items()} == dict.fromkeys(CATALOGS, code), found
    require_readable(found["dir"][1], tables["dir"])


ON_TABLES = [each for each in OPERATIONS if each.path.startswith("/v1/table/{id}/")]
CREATE = ("create_table", "declare_table", "register_table")
LACKS = (
    "alter_table_backfill_columns", "refresh_materialized_view", "rename_table",
    "update_field_metadata",
)  # fmt: skip
"""Operations that a directory does not have."""


@pytest.mark.parametrize("name", [each.name for each in ON_TABLES if each.name not in CREATE])
def test_a_missing_table_has_the_same_error_in_both_catalogs(served: Served, name: str) -> None:
    path, found = ["db", "none"], {}
    for catalog in CATALOGS:
        request = request_for(operation_named(name), [catalog, *path])
        found[catalog] = answer(
            served.http.request(request.pop("method"), request.pop("path"), **request)
        )
    if name in LACKS:
        assert found["dir"][0] == 0
        assert not OF_RUST.search(found["dir"][1])
    else:
        assert (found["dir"][0], found["own"][0]) == (4, 4), found
        require_readable(found["dir"][1], path)


# -- broken files ----------------------------------------------------------------------------------


def data_file(location: Path) -> Path:
    return next(each for each in (location / "data").rglob("*") if each.is_file())


def latest_manifest(location: Path) -> Path:
    return min((location / "_versions").glob("*.manifest"))  # their numbers count down


def truncate_data(location: Path) -> None:
    data_file(location).write_bytes(data_file(location).read_bytes()[:40])


def delete_data(location: Path) -> None:
    data_file(location).unlink()


def replace_data(location: Path) -> None:
    data_file(location).write_bytes(b"garbage" * 1000)


def replace_manifest(location: Path) -> None:
    latest_manifest(location).write_bytes(b"garbage" * 10)


def empty_manifest(location: Path) -> None:
    latest_manifest(location).write_bytes(b"")


def delete_manifests(location: Path) -> None:
    shutil.rmtree(location / "_versions")


def delete_index(location: Path) -> None:
    shutil.rmtree(location / "_indices")


def replace_tag(location: Path) -> None:
    (location / "_refs" / "tags" / "v1.json").write_bytes(b"garbage")


QUERIES: list[Request] = [("query_table", SCAN), ("query_table", NEAR)]
CHANGES: list[Request] = [
    ("update_table", {"updates": [["id", "1"]]}),
    ("create_table_index", {"column": "word", "index_type": "BTREE"}),
    ("create_table_scalar_index", {"column": "word", "index_type": "BTREE"}),
]
OPENING: list[Request] = [
    *QUERIES,
    *CHANGES,
    ("alter_table_add_columns", add("x")),
    ("alter_table_alter_columns", alter("word", rename="y")),
    ("alter_table_drop_columns", {"columns": ["word"]}),
    ("analyze_table_query_plan", SCAN),
    ("count_table_rows", {}),
    ("create_table_branch", {"name": "b2"}),
    ("delete_from_table", {"predicate": "id < 5"}),
    ("delete_table_branch", {"name": "b1"}),
    ("delete_table_tag", {"tag": "v1"}),
    ("describe_table_index_stats", {}),
    ("drop_table_index", {}),
    ("explain_table_query_plan", {"query": SCAN}),
    ("get_table_stats", {}),
    ("insert_into_table", {}),
    ("list_table_branches", {}),
    ("list_table_indices", {}),
    ("list_table_tags", {}),
    ("merge_insert_into_table", INSERT),
    ("restore_table", {"version": 1}),
]
"""All that open the dataset."""
WRITES: list[Request] = [("insert_into_table", {}), ("merge_insert_into_table", INSERT)]
STATS: Request = ("get_table_stats", {})
BY_ID: dict[str, Any] = {"filter": "id = 5", **SCAN}
TAGS: list[Request] = [
    ("list_table_tags", {}),
    ("get_table_tag_version", {"tag": "v1"}),
    ("update_table_tag", {"tag": "v1", "version": 1}),
]
BROKEN: dict[tuple[Callable[[Path], None], int], list[Request]] = {
    (truncate_data, 17): [*QUERIES, *CHANGES, STATS],
    (delete_data, 17): [*CHANGES, STATS],
    (delete_data, 19): QUERIES,
    (replace_data, 17): [*QUERIES, *CHANGES, STATS],
    (replace_manifest, 17): OPENING,
    (empty_manifest, 17): OPENING,
    (delete_manifests, 19): [each for each in OPENING if each not in WRITES],
    (delete_index, 17): [("delete_from_table", {"predicate": "id < 5"})],
    (delete_index, 19): [
        ("count_table_rows", {"predicate": "id = 5"}), ("query_table", BY_ID)
    ],
    (replace_tag, 17): TAGS,
}  # fmt: skip


@pytest.mark.parametrize(
    ("damage", "code", "requests"),
    [
        pytest.param(damage, code, requests, id=f"{damage.__name__}-{code}")
        for (damage, code), requests in BROKEN.items()
    ],
)
def test_a_broken_file_has_the_same_errors_in_both_catalogs(
    served: Served, damage: Callable[[Path], None], code: int, requests: list[Request]
) -> None:
    paths = {catalog: served.create(catalog) for catalog in CATALOGS}
    for catalog, path in paths.items():
        damage(served.location(catalog, path))
    for name, fields in requests:
        found = {each: served.send(each, paths[each], name, fields) for each in CATALOGS}
        codes = {each: of for each, (of, _) in found.items()}
        assert codes == dict.fromkeys(CATALOGS, code), (name, found)
        require_readable(found["dir"][1], paths["dir"])


# -- what pylance's namespace accepts, or cannot tell ----------------------------------------------


ANSWERS = -1
DIFFERENT: list[tuple[str, dict[str, Any], int, int, str]] = [
    ("describe_table", {"version": 99}, ANSWERS, 11, "reads the version only with the metadata"),
    ("table_exists", {"version": 99}, ANSWERS, 11, "does not read the version"),
    ("query_table", {"branch": "no", **SCAN}, ANSWERS, 22, "ignores the branch"),
    ("create_table_tag", {"tag": "n", "version": 1, "branch": "no"}, ANSWERS, 22,
     "ignores the branch"),
    ("delete_from_table", {"branch": "no", "predicate": "false"}, ANSWERS, 22,
     "ignores the branch"),
    ("create_table_version", {"version": 2, "manifest_path": "x"}, 14, 13,
     "compares the version before the file"),
    ("alter_table_alter_columns", alter("word", rename=""), ANSWERS, 13,
     "takes a name that no expression can have"),
    ("query_table", {"nprobes": 0, **NEAR}, ANSWERS, 13, "ignores it"),
    ("query_table", {"ef": 0, **NEAR}, ANSWERS, 13, "ignores it"),
    ("query_table", {"refine_factor": 0, **NEAR}, ANSWERS, 13, "ignores it"),
    ("alter_table_add_columns", {"new_columns": []}, ANSWERS, 13, "commits a version"),
    ("alter_table_alter_columns", {"alterations": []}, ANSWERS, 13, "commits a version"),
    ("alter_table_alter_columns", alter("id"), ANSWERS, 13, "commits a version"),
    ("alter_table_drop_columns", {"columns": []}, ANSWERS, 13, "commits a version"),
    ("list_table_indices", {"limit": 0}, ANSWERS, 13, "gives an empty page"),
    ("list_table_tags", {"limit": 0}, ANSWERS, 13, "gives an empty page"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "fields", "codes", "why"),
    [
        pytest.param(name, fields, (directory, own), why, id=f"{name}-{why}-{number}")
        for number, (name, fields, directory, own, why) in enumerate(DIFFERENT)
    ],
)
def test_a_directory_accepts_or_refuses_this_in_its_own_way(
    served: Served, name: str, fields: dict[str, Any], codes: tuple[int, int], why: str
) -> None:
    found = {each: served.send(each, served.create(each), name, fields) for each in CATALOGS}
    assert (found["dir"][0], found["own"][0]) == codes, (why, found)
    assert not OF_RUST.search(found["dir"][1])


@pytest.mark.parametrize("request_", WRITES, ids=lambda each: each[0])
def test_a_directory_writes_a_first_version_where_all_are_gone(
    served: Served, request_: Request
) -> None:
    """For pylance, such a table is a declared one."""
    codes = []
    for catalog in CATALOGS:
        path = served.create(catalog)
        delete_manifests(served.location(catalog, path))
        codes.append(served.send(catalog, path, *request_)[0])
    assert codes == [ANSWERS, 19]


def test_a_missing_namespace_is_a_missing_table_in_a_directory(served: Served) -> None:
    found = {each: served.send(each, ["no", "t"], "get_table_stats", {}) for each in CATALOGS}
    assert (found["dir"][0], found["own"][0]) == (4, 1)
    require_readable(found["dir"][1], ["no", "t"])


# -- operations that take mappings -----------------------------------------------------------------


def test_versions_of_a_directory_are_described_created_and_deleted(served: Served) -> None:
    path = served.create("dir")
    served.namespaces["dir"].delete_table_tag(api.DeleteTableTagRequest(id=path, tag="v1"))
    location = served.location("dir", path)
    lance.write_dataset(ROWS, str(location), mode="append")
    staged = latest_manifest(location).rename(location / "_versions" / "staged")
    fields = {"version": 3, "manifest_path": str(staged), "naming_scheme": "V2"}
    assert served.send("dir", path, "create_table_version", fields) == (ANSWERS, "")
    assert lance.dataset(str(location)).version == 3
    assert served.send("dir", path, "describe_table_version", {"version": 3}) == (ANSWERS, "")
    assert served.send("dir", path, "batch_delete_table_versions", ranges(1, 2)) == (ANSWERS, "")
    assert [each["version"] for each in lance.dataset(str(location)).versions()] == [2, 3]


def test_a_federation_translates_errors_without_a_gateway(tmp_path: Path) -> None:
    directory = lance_bridge.connect("dir", root=str(tmp_path))
    directory.create_table(api.CreateTableRequest(id=["t"]), ipc(ROWS))
    federation = FederatedNamespace({"prod": directory})
    with pytest.raises(TableVersionNotFoundError, match=r"^Table 'prod\.t' has no version 99$"):
        federation.restore_table(api.RestoreTableRequest(id=["prod", "t"], version=99))

"""One place and one name, however they are spelled: locations, and names alike but for case."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError, TableColumnNotFoundError
from lance_namespace_urllib3_client.models import AddColumnsEntry, AlterColumnsEntry

from lance_bridge import locations
from lance_bridge.requests import OrderedQuery

from .memory_catalog import TABLE, MemoryNamespace, MemoryServer
from .table_data import dataset, make

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("operations.md#expressions", "operations.md#field-paths"),
]

CHARACTERS = st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="/?#%")
SEGMENTS = st.text(CHARACTERS, min_size=1, max_size=6).filter(
    lambda name: name not in (".", "..") and name == name.strip()
)
PLACES = st.lists(SEGMENTS, min_size=1, max_size=4)
KEYS = st.lists(st.sampled_from("abc"), max_size=4).map(tuple)
# Where no link of this machine can be.
NOWHERE = "/no-such-directory-of-lance-bridge"


@given(PLACES, st.integers(1, 3))
def test_every_spelling_of_a_local_place_has_one_key(names: list[str], slashes: int) -> None:
    plain = "/".join([NOWHERE, *names])
    key = locations.key(plain)
    for spelling in (
        plain + "/" * slashes,
        plain.replace("/", "/" * slashes),
        plain + "/.",
        plain + "/x/..",
        f"file:{plain}",
        f"file://{plain}",
        f"FILE://{plain}/",
        f"file://localhost{plain}",
        locations.for_lance(plain),
        locations.for_catalog(plain),
        locations.for_lance(f"file://{plain}/"),
    ):
        assert locations.key(spelling) == key, spelling


@given(PLACES)
def test_every_spelling_of_a_remote_place_has_one_key(names: list[str]) -> None:
    path = "/".join(names)
    plain = f"s3://bucket/{path}"
    key = locations.key(plain)
    for spelling in (
        f"{plain}/",
        f"s3a://bucket/{path}",
        f"S3N://bucket/{path}",
        f"s3://someone@bucket/{path}",
        f"s3://bucket:443/{path}",
        f"{plain}?x=1",
        f"{plain}#part",
        f"{plain}/x/..",
        f"{plain}/x/%2E%2e",
        f"s3://bucket/./{path}",
        f"s3://bucket/../{path}",
        f"s3://bucket/%2e/{path}",
        f"s3://bucket//{path}",
        "s3://bucket/" + quote(path),
        "s3://bucket/" + quote(path, safe=""),
        f" {plain} ",
        f"s3://bu\ncket/{path}\t",
        locations.for_lance(plain),
        locations.for_catalog(plain),
        locations.table_uri(plain),
    ):
        assert locations.key(spelling) == key, spelling


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://bucket/a", "s3://other/a"),
        ("s3://bucket/a", "gs://bucket/a"),
        ("s3://bucket/a", "s3://bucket/A"),
        ("s3://bucket/a", "s3://bucket/a.lance"),
        ("s3://bucket/a%252e", "s3://bucket/a%2e"),
        ("/a", "/a.lance"),
        ("/a%20b", "/a b"),
        ("/*/t.lance", "/a/t.lance"),
        ("/bucket/a", "s3://bucket/a"),
        ("az://one/a", "az://two/a"),
    ],
)
def test_different_places_have_different_keys(one: str, other: str) -> None:
    assert locations.key(one) != locations.key(other)
    assert not locations.overlap(locations.key(one), locations.key(other))


def test_links_of_local_files_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "real" / "t.lance").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert locations.key(f"{tmp_path}/link/t.lance") == locations.key(f"{tmp_path}/real/t.lance")


@given(KEYS, KEYS)
def test_overlap_is_symmetric_and_means_containment(
    one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    contains = one == other[: len(one)] or other == one[: len(other)]
    assert locations.overlap(one, other) is contains
    assert locations.overlap(other, one) is contains
    assert locations.overlap(one, one)


@given(PLACES, PLACES)
def test_a_place_overlaps_with_what_is_joined_to_it(names: list[str], more: list[str]) -> None:
    for start in (f"{NOWHERE}/", "s3://bucket/", "gs://bucket"):
        place = locations.join(start, *names)
        inside = locations.join(place, *more)
        assert locations.overlap(locations.key(place), locations.key(inside))
        assert locations.key(place) != locations.key(inside)


@pytest.mark.spec("common.md#shared-locations")
@pytest.mark.parametrize(
    ("location", "keys"),
    [
        ("file:///a%20b", {("file", "a b"), ("file", "a%20b")}),
        ("/a%20b", {("file", "a%20b")}),
        ("s3://b/a%20b", {("s3", "b", "a b")}),
        ("a/b", {(locations.ANY, "a", "b")}),
        ("../a/./b", {(locations.ANY, "a", "b")}),
    ],
)
def test_a_location_may_mean_what_lance_or_hadoop_reads_in_it(
    location: str, keys: set[tuple[str, ...]]
) -> None:
    assert locations.possible_keys(location) == keys


@pytest.mark.parametrize(
    ("location", "readable"),
    [
        (f"file:{NOWHERE}/x/../a%20b/", {f"{NOWHERE}/a b", f"{NOWHERE}/a%20b"}),
        ("s3+ddb://b/a b?ddbTableName=t", {"s3://b/a%20b"}),
        ("https://b.s3.eu-west-1.amazonaws.com/a", {"s3://b/a"}),
        ("s3a://b/x/%2e%2e/100%25", {"s3://b/100%25"}),
        ("gcs://b/a", {"gs://b/a"}),
        ("abfs://c@a.dfs.core.windows.net/t", {"abfss://c@a.dfs.core.windows.net/t"}),
        ("s3://x-s3alias/a/", {"s3://x-s3alias/a"}),
        ("hdfs://name/a", set()),
        ("https://minio/b/a", set()),
        ("a/b", set()),
    ],
)
def test_lances_files_are_read_under_every_spelling_of_a_store(
    location: str, readable: set[str]
) -> None:
    assert locations.readable_spellings(location) == readable


@pytest.mark.parametrize(
    ("location", "lance", "catalog", "uri"),
    [
        ("/a/b.lance/", "/a/b.lance", "file:///a/b.lance", "file:///a/b.lance"),
        ("file:/a/b c", "/a/b c", "file:///a/b c", "file:///a/b%20c"),
        ("file:///a/100%", "/a/100%", "file:///a/100%", "file:///a/100%25"),
        ("s3a://b/t.lance/", "s3://b/t.lance", "s3a://b/t.lance", "s3://b/t.lance"),
        ("s3://b/a b%20c", "s3://b/a b%20c", "s3://b/a b%20c", "s3://b/a%20b%20c"),
        ("gs://b/ü", "gs://b/ü", "gs://b/ü", "gs://b/%C3%BC"),
        (
            "abfs://c@a.dfs.core.windows.net/t",
            "abfss://c@a.dfs.core.windows.net/t",
            "abfs://c@a.dfs.core.windows.net/t",
            "abfss://c@a.dfs.core.windows.net/t",
        ),
    ],
)
def test_a_location_is_spelled_for_lance_for_the_catalog_and_as_a_uri(
    location: str, lance: str, catalog: str, uri: str
) -> None:
    assert locations.check(location) == lance
    assert locations.for_lance(location) == lance
    assert locations.for_catalog(location) == catalog
    assert locations.table_uri(location) == uri


@given(PLACES)
def test_a_table_uri_is_ascii_and_decodes_to_the_place(names: list[str]) -> None:
    path = "/".join(names)
    uri = locations.table_uri(f"s3://bucket/{path}")
    assert uri.isascii()
    assert " " not in uri
    assert unquote(uri) == f"s3://bucket/{path}"


BAD = [
    ("", "1 to 2048"),
    ("  ", "1 to 2048"),
    ("/" + "a" * 2048, "1 to 2048"),
    ("a/b", "relative"),
    ("./a", "relative"),
    ("~/a", "relative"),
    ("file:a", "relative"),
    ("file://host/a", "on the host 'host'"),
    ("file://a", "on the host 'a'"),
    ("/a\nb", "control characters"),
    ("s3://b/a\x00", "control characters"),
    ("s3://b/a%0ab", "control characters"),
    ("s3://b/a%00b", "control characters"),
    (" /a", "space"),
    ("s3://b/a ", "space"),
    ("/a/../b", r"'\.\.'"),
    ("s3://b/a/..", r"'\.\.'"),
    ("s3://b/a/%2e%2E/c", r"'\.\.'"),
    ("s3://b/a/.%2e/c", r"'\.\.'"),
    ("s3://b/a%2f..%2fc", r"'\.\.'"),
    ("s3://b/a?versionId=1", r"'\?' or '#'"),
    ("s3://b/a#b", r"'\?' or '#'"),
    ("s3:///a", "no bucket"),
    ("s3:/a", "no bucket"),
    ("s3://", "no bucket"),
    ("s3://b", "whole bucket"),
    ("s3://b/", "whole bucket"),
    ("s3://b/.", "whole bucket"),
    ("/", "whole bucket or file system"),
    ("file:///", "whole bucket or file system"),
    ("s3://b//a", "empty segment"),
    ("s3://b/a//c", "empty segment"),
    ("s3://user@b/a", "user or a port"),
    ("s3://b:9000/a", "user or a port"),
    ("s3://b%2fc/a", "user or a port"),
    ("gs://x@y@b/a", "user or a port"),
    ("abfss://c@a:1/x", "user or a port"),
    ("hdfs://host/a", "'hdfs'"),
    ("http://host/a", "'http'"),
    ("memory://a/b", "'memory'"),
    ("javascript:alert(1)", "'javascript'"),
]


@pytest.mark.spec("common.md#declaretable", "common.md#locations", "common.md#registertable")
def test_a_bad_location_is_invalid_and_the_message_says_why() -> None:
    for location, problem in BAD:
        with pytest.raises(InvalidInputError, match=problem) as caught:
            locations.check(location)
        assert len(str(caught.value)) < 400


@pytest.mark.spec("common.md#declaretable", "common.md#locations")
@pytest.mark.parametrize(
    "location", ["s3://me:hunter2@b/a", "s3a://me:hunter2@b", "x://:hunter2@b"]
)
def test_a_password_in_a_location_is_not_shown(location: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        locations.check(location)
    assert "hunter2" not in str(caught.value)


@given(st.text(max_size=30), st.sampled_from(["", "/", "file:///", "s3://b/", "az://c/", "x:"]))
def test_any_text_is_invalid_or_a_place_of_its_own(text: str, start: str) -> None:
    try:
        spelled = locations.check(start + text)
    except InvalidInputError:
        return
    assert locations.check(spelled) == spelled
    assert locations.key(spelled) == locations.key(start + text)
    depth = 1 if spelled.startswith("/") else 2
    assert len(locations.key(spelled)) > depth
    assert ".." not in locations.key(spelled)


@pytest.mark.parametrize(
    ("location", "expected"),
    [("/a", True), ("file:/a", True), ("s3a://b", True), ("abfs://b", True), ("hdfs://h/a", False)],
)
def test_storage_is_known_by_its_scheme(location: str, expected: bool) -> None:
    assert locations.is_supported(location) is expected


S3_SPELLINGS = [
    "s3://lake/a/t.lance",
    "s3a://lake/a/t.lance",
    "s3n://lake/a/t.lance/",
    "s3+ddb://lake/a/t.lance?ddbTableName=commits",
    "s3://lake.s3.eu-west-1.amazonaws.com/a/t.lance",
    "https://lake.s3.amazonaws.com/a/t.lance",
    "https://lake.s3-eu-west-1.amazonaws.com/a/t.lance",
    "https://lake.s3.dualstack.eu-west-1.amazonaws.com/a/t.lance",
    "https://lake.s3-accelerate.amazonaws.com/a/t.lance",
    "https://lake.s3.cn-north-1.amazonaws.com.cn/a/t.lance",
    "https://s3.eu-west-1.amazonaws.com/lake/a/t.lance",
    "https://s3.amazonaws.com/lake/a/t.lance",
]
AZURE_SPELLINGS = [
    "az://lake/a/t.lance",
    "abfs://lake@store.dfs.core.windows.net/a/t.lance",
    "abfss://lake@store.dfs.core.windows.net/a/t.lance",
    "wasb://lake@store.blob.core.windows.net/a/t.lance",
    "wasbs://lake@store.blob.core.windows.net:443/a/t.lance",
    "https://store.blob.core.windows.net/lake/a/t.lance",
    "https://store.dfs.core.windows.net/lake/a/t.lance",
]
GOOGLE_SPELLINGS = [
    "gs://lake/a/t.lance",
    "gcs://lake/a/t.lance",
    "https://storage.googleapis.com/lake/a/t.lance",
    "https://lake.storage.googleapis.com/a/t.lance",
]
HADOOP_SPELLINGS = [
    "hdfs:///a/t.lance",
    "hdfs://name/a/t.lance",
    "hdfs://name-1.example:8020/a/t.lance",
    "webhdfs://name:9870/a/t.lance",
]
ANY_BUCKET = [
    "s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/mine/a/t.lance",
    "s3://arn:aws:s3::123456789012:accesspoint/mine.mrap/a/t.lance",
    "s3://mine-x1y2z3-s3alias/a/t.lance",
    "https://mine-123456789012.s3-accesspoint.eu-west-1.amazonaws.com/a/t.lance",
]
MOUNTS = [
    "viewfs://cluster/warehouse/a/t.lance",
    "dbfs:/mnt/lake/a/t.lance",
    "dbfs:///mnt/lake/a/t.lance",
    "https://minio.example:9000/lake/a/t.lance",
]


@pytest.mark.spec("common.md#shared-locations")
@pytest.mark.parametrize(
    "spellings", [S3_SPELLINGS, AZURE_SPELLINGS, GOOGLE_SPELLINGS, HADOOP_SPELLINGS]
)
def test_every_spelling_of_a_store_has_one_key(spellings: list[str]) -> None:
    assert {locations.key(each) for each in spellings} == {locations.key(spellings[0])}


@pytest.mark.spec("common.md#shared-locations")
@pytest.mark.parametrize("spelling", ANY_BUCKET)
def test_an_access_point_may_be_for_any_bucket(spelling: str) -> None:
    key = locations.key(spelling)
    for place in ("s3://lake/a/t.lance", "s3://other/a", "s3://lake/a/t.lance/data"):
        assert locations.overlap(key, locations.key(place))
        assert locations.overlap(locations.key(place), key)
    for place in ("s3://lake/a/u.lance", "gs://lake/a/t.lance", "/a/t.lance"):
        assert not locations.overlap(key, locations.key(place))


@pytest.mark.spec("common.md#shared-locations")
@pytest.mark.parametrize("spelling", MOUNTS)
def test_a_mount_may_be_of_any_storage(spelling: str) -> None:
    key = locations.key(spelling)
    for place in ("s3://lake/a/t.lance", "gs://b/t.lance", "az://b/a/t.lance/data", "/a/t.lance"):
        assert locations.overlap(key, locations.key(place))
        assert locations.overlap(locations.key(place), key)
    assert not locations.overlap(key, locations.key("s3://lake/a/u.lance"))


# -- stores that only Lance opens ------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["oss", "cos", "tos", "hf", "OSS"])
def test_a_location_may_be_on_any_store_that_lance_opens(scheme: str) -> None:
    location = f"{scheme}://bucket/a/t.lance"
    assert locations.check(location) == f"{scheme.lower()}://bucket/a/t.lance"
    assert not locations.is_supported(location)


@pytest.mark.parametrize("scheme", ["memory", "shared-memory", "file-object-store", "s3+ddb"])
def test_a_store_that_other_processes_do_not_see_holds_no_table(scheme: str) -> None:
    with pytest.raises(InvalidInputError, match=f"'{re.escape(scheme)}'"):
        locations.check(f"{scheme}://bucket/a/t.lance")


def test_the_schemes_are_those_that_lance_names() -> None:
    found = locations.lance_schemes()
    assert found > {"s3", "gs", "az", "abfss", "oss"}
    for scheme in found:
        assert re.fullmatch(r"[a-z0-9]+", scheme)


ROWS = pa.table(
    {
        "id": [1, 2],
        "Id": [10, 20],
        "n": [7, 8],
        "s": [{"a": 1, "A": 2, "b": 5}, {"a": 3, "A": 4, "b": 6}],
        "words": ["one", "two"],
        "Words": ["three", "four"],
        "v": pa.array([[0.0, 1.0], [1.0, 0.0]], pa.list_(pa.float32(), 2)),
        "V": pa.array([[9.0, 1.0], [1.0, 9.0]], pa.list_(pa.float32(), 2)),
    }
)
NUMBERS = count()
Call = Callable[[MemoryNamespace, str], Any]


def merge(namespace: MemoryNamespace, **more: Any) -> Any:
    request = api.MergeInsertIntoTableRequest(
        id=TABLE, **{"on": ["n"], "when_matched_update_all": True, **more}
    )
    return namespace.merge_insert_into_table(request, ROWS)


def query(namespace: MemoryNamespace, **more: Any) -> pa.Table:
    answer = namespace.query_table(OrderedQuery(id=TABLE, **{"k": 9, "vector": {}, **more}))
    return pa.ipc.open_file(answer.data).read_all()


def update(namespace: MemoryNamespace, column: str, value: str, where: str | None = None) -> Any:
    request = api.UpdateTableRequest(id=TABLE, updates=[[column, value]], predicate=where)
    return namespace.update_table(request)


def add(namespace: MemoryNamespace, expression: str) -> Any:
    columns = [AddColumnsEntry(name=f"new{next(NUMBERS)}", expression=expression)]
    return namespace.alter_table_add_columns(
        api.AlterTableAddColumnsRequest(id=TABLE, new_columns=columns)
    )


EXPRESSIONS: dict[str, Call] = {
    "filter": lambda ns, sql: query(ns, filter=f"{sql} > 1"),
    "count": lambda ns, sql: ns.count_table_rows(
        api.CountTableRowsRequest(id=TABLE, predicate=f"{sql} > 1")
    ),
    "alias": lambda ns, sql: query(ns, columns={"column_aliases": {"x": f"{sql} + 1"}}),
    "update to": lambda ns, sql: update(ns, "n", f"{sql} + 1"),
    "update where": lambda ns, sql: update(ns, "n", "0", f"{sql} > 1"),
    "delete": lambda ns, sql: ns.delete_from_table(
        api.DeleteFromTableRequest(id=TABLE, predicate=f"{sql} > 1")
    ),
    "add column": add,
    "merge if": lambda ns, sql: merge(ns, when_matched_update_all_filt=f"target.{sql} > 1"),
    "merge delete if": lambda ns, sql: merge(
        ns,
        when_not_matched_by_source_delete=True,
        when_not_matched_by_source_delete_filt=f"{sql} > 1",
    ),
}
"""Operations with SQL, in which a name may be in any letter case."""
PATHS: dict[str, Call] = {
    "column": lambda ns, name: query(ns, columns={"column_names": [name]}),
    "order": lambda ns, name: query(ns, order_by=[{"column_name": name}]),
    "index": lambda ns, name: ns.create_table_index(
        api.CreateTableIndexRequest(id=TABLE, column=name, index_type="BTREE")
    ),
    "update": lambda ns, name: update(ns, name, "0"),
    "merge on": lambda ns, name: merge(ns, on=[name]),
    "drop": lambda ns, name: ns.alter_table_drop_columns(
        api.AlterTableDropColumnsRequest(id=TABLE, columns=[name])
    ),
    "rename": lambda ns, name: ns.alter_table_alter_columns(
        api.AlterTableAlterColumnsRequest(
            id=TABLE, alterations=[AlterColumnsEntry(path=name, rename="new")]
        )
    ),
}
"""Operations with names of columns, which are those of the table."""


@pytest.fixture
def filled(namespace: MemoryNamespace) -> MemoryNamespace:
    make(namespace, ROWS)
    return namespace


@pytest.mark.parametrize("operation", EXPRESSIONS)
def test_an_expression_that_may_mean_two_columns_is_refused(
    filled: MemoryNamespace, server: MemoryServer, operation: str
) -> None:
    with pytest.raises(InvalidInputError, match="ID may mean 'id' and 'Id'"):
        EXPRESSIONS[operation](filled, "ID")
    found = dataset(server)
    assert (found.version, found.to_table()) == (1, ROWS)
    for name in ("id", "Id", "N", "`id`"):
        EXPRESSIONS[operation](filled, name)


@pytest.mark.parametrize("operation", [each for each in EXPRESSIONS if "merge" not in each])
def test_an_expression_with_a_field_of_a_struct_means_that_one(
    filled: MemoryNamespace, operation: str
) -> None:
    for name in ("s.a", "s.A", "S.A", "s.b"):
        EXPRESSIONS[operation](filled, name)
    with pytest.raises(TableColumnNotFoundError, match="there is no column"):
        EXPRESSIONS[operation](filled, "s.B")


@pytest.mark.parametrize("name", ["ID", "iD", "N"])
@pytest.mark.parametrize("operation", PATHS)
def test_a_path_in_another_letter_case_is_refused(
    filled: MemoryNamespace, server: MemoryServer, operation: str, name: str
) -> None:
    with pytest.raises(TableColumnNotFoundError, match=f"'?{name}"):
        PATHS[operation](filled, name)
    assert dataset(server).to_table() == ROWS


def others(found: lance.LanceDataset, *names: str) -> pa.Table:
    return found.to_table().drop_columns(list(names))


@pytest.mark.parametrize("name", ["id", "Id"])
@pytest.mark.parametrize("operation", PATHS)
def test_a_path_means_one_column(
    filled: MemoryNamespace, server: MemoryServer, operation: str, name: str
) -> None:
    PATHS[operation](filled, name)
    found = dataset(server)
    changed = {"drop": [], "rename": ["new"], "update": [name]}.get(operation, [])
    left = [] if operation not in ("drop", "rename", "update") else [name]
    expected = ROWS.drop_columns(left)
    assert others(found, *changed).sort_by("n") == expected
    if operation == "index":
        [index] = found.describe_indices()
        assert index.field_names == [name]


def test_an_update_of_one_column_keeps_the_one_of_the_other_letter_case(
    filled: MemoryNamespace, server: MemoryServer
) -> None:
    update(filled, "Id", "id * 100", "Id = 20")
    found = dataset(server).to_table().sort_by("n")
    assert found["id"].to_pylist() == [1, 2]
    assert found["Id"].to_pylist() == [10, 200]


def test_a_search_means_one_column(filled: MemoryNamespace) -> None:
    vector = {"single_vector": [1.0, 9.0]}
    for column, first in (("v", 1), ("V", 2)):
        rows = query(filled, k=1, vector=vector, vector_column=column)
        assert rows["id"].to_pylist() == [first]
    for column in ("words", "Words"):
        filled.create_table_index(
            api.CreateTableIndexRequest(id=TABLE, column=column, index_type="FTS")
        )
    for column, text, found in (("words", "two", 1), ("Words", "two", 0), ("Words", "four", 1)):
        wanted = {"string_query": {"query": text, "columns": [column]}}
        assert query(filled, full_text_query=wanted).num_rows == found
    wanted = {"string_query": {"query": "two", "columns": ["WORDS"]}}
    with pytest.raises(TableColumnNotFoundError, match="WORDS"):
        query(filled, full_text_query=wanted)


def test_rows_are_written_by_exact_names(filled: MemoryNamespace, server: MemoryServer) -> None:
    reversed_columns = ROWS.select(ROWS.schema.names[::-1])
    request = api.InsertIntoTableRequest(id=TABLE)
    filled.insert_into_table(request, reversed_columns)
    assert dataset(server).to_table() == pa.concat_tables([ROWS, ROWS])

"""LanceDB's client does on a directory behind a gateway what it does on a directory.

The guide of clients lists the parameters of its table that do not, and why.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import lancedb
import pyarrow as pa
import pytest
from lancedb.pydantic import LanceModel, Vector
from lancedb.remote.errors import HttpError
from server.gateways import memory_namespace, serve_namespace
from server.lancedb_clients.differences import CHANGES, READS, Action, rows, unknown

import lance_bridge
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.redaction import PublicAnswers

pytestmark = [
    pytest.mark.servers,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.spec("server.md#lancedb"),
]

# -- parameters ------------------------------------------------------------------------------------


GUIDE = Path(__file__).parents[3] / "docs" / "gateway-clients.md"
_LACKS = "LanceDB's remote class has no such parameter"
_NO_PQ = "LanceDB's remote client refuses this type of index"
_LATER = "LanceDB needs protocol 0.6 or later, of which 0.4 has uploads in parts"
DIFFERENCES = {
    "HnswPq.*": _NO_PQ,
    "create_index.index_type=IVF_HNSW_PQ": _NO_PQ,
    "IvfPq.sample_rate": "pylance applies it to the quantizer as well",
    "create_index.sample_rate": _LACKS,
    "create_index.max_iterations": _LACKS,
    "create_index.m": _LACKS,
    "create_index.ef_construction": _LACKS,
    "create_index.target_partition_size": _LACKS,
    "create_index.train": "LanceDB's remote client does not send it",
    "create_fts_index.use_tantivy": _LACKS,
    "create_fts_index.tokenizer_name": _LACKS,
    "create_fts_index.document_granularity": _LATER,
    "MatchQuery.document_granularity=element": _LATER,
    "add_columns.computed": "LanceDB also notes a signature of the sources, which is its own",
    "merge_insert.execute.on_bad_vectors": "LanceDB's remote client fails if no row is left",
    "MultiMatchQuery.operator": "LanceDB's remote client does not send it",
    "optimize.retrain": _LACKS,
    "search.ordering_field_name": _LACKS,
}
"""Why a case differs, by the pattern of its name."""

_REFUSALS = (HttpError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""What LanceDB raises; NotImplementedError is a RuntimeError."""


@dataclass(frozen=True)
class Place:
    """A connection, and how a table of it is read past the connection."""

    db: Any
    location: Callable[[str], str]

    def outcome(self, name: str, action: Action, *, keeps: bool) -> tuple[str, Any]:
        """Return ``done`` and what an action leads to, or ``refused`` and why.

        Args:
            keeps: Whether the action changes nothing.
        """
        table = self.db.open_table(name)
        try:
            found = action(table)
        except _REFUSALS as error:
            return "refused", f"{type(error).__name__}: {error}"
        return "done", found if keeps else self.state(name)

    def state(self, name: str) -> Any:
        """Return the schema, rows and indices of a table."""
        dataset = lance.dataset(self.location(name))
        table = dataset.to_table()
        table = table.sort_by("id") if "id" in table.column_names else table
        indices = [
            (each.name, each.index_type, each.field_names, each.num_rows_indexed, _details(each))
            for each in dataset.describe_indices()
            if not each.name.startswith("__")
        ]
        return table.schema.to_string(), table.to_pylist(), indices


def _details(index: Any) -> str:
    details = dict(index.details or {})
    hints = details.pop("runtime_hints", None) or {}
    return json.dumps([details, hints], sort_keys=True, default=str)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Place]]:
    """A directory, and the same through a gateway, each with a table for reads."""
    root = tmp_path_factory.mktemp("differences")
    namespace = memory_namespace(root)
    namespace.create_namespace(api.CreateNamespaceRequest(id=["db"]))

    def location(name: str) -> str:
        request = api.DescribeTableRequest(id=["db", name])
        return str(namespace.describe_table(request).location)

    with serve_namespace(namespace) as url:
        remote = lancedb.connect("db://db", api_key="k", host_override=url)
        plain = lancedb.connect(root / "plain")
        found = [Place(plain, lambda name: str(root / "plain" / f"{name}.lance"))]
        found.append(Place(remote, location))
        for place in found:
            table = place.db.create_table("read", rows())
            table.create_fts_index("title", with_position=True)
        found[0].db.open_table("read").create_fts_index(
            "tags", document_granularity=_element(), name="elements"
        )
        yield found


def _element() -> Any:
    return lancedb.query.DocumentGranularity.LIST_ELEMENT


@pytest.mark.spec("server.md#further-fields", "server.md#what-is-refused")
def test_every_parameter_is_tried() -> None:
    assert unknown() == []


@pytest.mark.spec("server.md#further-fields", "server.md#what-is-refused")
@pytest.mark.parametrize("name", [*CHANGES, *READS])
def test_the_gateway_does_what_a_directory_does(places: list[Place], name: str) -> None:
    keeps = name in READS
    action = READS[name] if keeps else CHANGES[name]
    table = "read" if keeps else f"t{[*CHANGES].index(name)}"
    if not keeps:
        for place in places:
            place.db.create_table(table, rows())
    plain, remote = (place.outcome(table, action, keeps=keeps) for place in places)
    reason = _reason(name)
    if plain[0] == "refused":
        return
    if reason is None:
        assert remote == plain
    else:
        assert remote != plain, "it does not differ any more"


def _reason(name: str) -> str | None:
    return next((why for each, why in DIFFERENCES.items() if fnmatch(name, each)), None)


@pytest.mark.spec("server.md#further-fields", "server.md#what-is-refused", "server.md#lancedb")
def test_the_guide_lists_the_differences() -> None:
    lines = GUIDE.read_text().splitlines()
    for pattern, reason in DIFFERENCES.items():
        assert any(f"`{pattern}`" in each and each.endswith(f"| {reason} |") for each in lines), (
            pattern
        )


# -- SQL of LanceDB's documentation ----------------------------------------------------------------


COUNT = 20
NOON = datetime.datetime(2024, 1, 1, 12)
FILTERS = r"""
id == 1 or id <> 2 and not id > 5
id IN (1, 2, 3) or id NOT IN (4, 5) and id > 9
id BETWEEN 2 AND 4 or id NOT BETWEEN 5 AND 19
title LIKE 'Film 1%' or title ILIKE 'film 2%' or title NOT LIKE 'Film%'
title LIKE '%\_1' or title = 'it''s'
word IS NULL or word IS NOT NULL and word <> ''
flag or flag IS TRUE or flag IS NOT FALSE
NOT flag and -id < 5 and id % 2 = 0 and price / 2 >= 3
day = date '2024-01-21' or day > cast('2024-06-01' as date)
at BETWEEN timestamp '2024-01-10 00:00:00' AND timestamp '2024-01-20T00:00:00.5'
at > timestamp(3) '2024-01-10 00:00:00' and at < now() and day < current_date
atz > timestamp '2024-01-10 00:00:00Z' or cast(at as date) = date '2024-01-03'
date_part('year', at) = 2024 and date_part('hour', at) > 12
date_trunc('month', at) = timestamp '2024-01-01 00:00:00'
to_timestamp('2024-01-10T00:00:00') < at or to_date('2024-01-10') < day
to_char(at, '%Y-%m') = '2024-01' and at > from_unixtime(0)
cast(id as string) = '5' or cast(price as int) = 3 or cast(id as bigint unsigned) = 7
arrow_cast(id, 'Int32') = 4
regexp_match(title, 'Film 1.*') or regexp_like(title, 'dog_2$')
starts_with(title, 'Film 1') or ends_with(title, '2') or contains(title, 'dog_0')
lower(trim(title)) = 'film 1 the % dog_1' or upper(left(title, 6)) = 'FILM 2'
length(title) > 18 and strpos(title, 'dog') > 0 and split_part(title, ' ', 2) <> '12'
right(title, 1) = '2' and id < 6 or concat(title, word) LIKE '%1abc'
replace(title, 'Film', 'Movie') LIKE 'Movie 1%' or translate(word, 'abc', 'xyz') = 'xyz'
regexp_replace(title, '(Film) (\d)', '\2 \1', 'g') LIKE '1%Film%'
concat_ws('-', word, title) LIKE 'abc-%' or lpad(word, 5, 'x') = 'xxabc' or rpad(word, 4) = 'abc '
repeat(word, 2) = 'abcabc' or encode(bin, 'hex') = '01' or array_repeat(id, 3)[2] = 5
array_to_string(tags, ',') = 't0,u0' or array_contains(range(0, 5), id)
coalesce(word, 'none') = 'none' or nullif(word, 'abc') is null or greatest(id, 5) = 5
abs(id - 5) < 2 or round(price) = 3 or power(id, 2) > 300 or sqrt(id) = 3
tags[1] = 't0' or nums[-1] = 4 or array_length(tags) = 3 or array_position(nums, 4) = 2
array_has(tags, 't1') or array_has_any(nums, [3, 4]) or array_has_all(tags, make_array('t2', 'u0'))
meta.a > 5 and meta.b = 'b0' or meta['c']['d'] > 9 or `meta`.`a` = 1
meta.c.d BETWEEN 1 AND 2 or meta.b LIKE '%1' and meta.a IN (1, 3)
json_extract(json, '$.a') = '5' or json_get_int(json, 'a') = 7 or json_exists(json, '$.even')
json_get_string(json, 'b') = 'x' and json_array_contains(json, '$.l', 3)
bin = x'01' or cat IN ('c1', 'c2') or dec > 2 or f32 > 2.5
`Mixed Case` = 5 or camelCase = 6 or `camelCase` = 7
title = 'x' -- a comment
title = 'Film 1 the % dog_1' /* a comment */
""".strip().splitlines()
COLUMNS = {
    "double": "cast((price * 2) as float)",
    "slug": "replace(lower(title), ' ', '-')",
    "joined": "array_to_string(tags, ', ')",
    "field": "meta.c.d",
    "day": "date_trunc('day', at)",
    "part": "nums[1]",
    "null": "cast(NULL as string)",
}


def _document(number: int) -> str:
    even = {"even": True} if number % 2 == 0 else {}
    return json.dumps({"a": number, "b": "x", "l": [1, number], **even})


def filtered_rows() -> pa.Table:
    ids = range(COUNT)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "title": [f"Film {i} the % dog_{i % 3}" for i in ids],
            "word": [None if i % 7 == 6 else "abc" * (i % 4) for i in ids],
            "price": [i * 1.5 for i in ids],
            "f32": pa.array([i / 3 for i in ids], pa.float32()),
            "flag": [None if i % 5 == 4 else i % 2 == 0 for i in ids],
            "day": [NOON.date() + datetime.timedelta(days=i * 20) for i in ids],
            "at": [NOON + datetime.timedelta(hours=i * 50) for i in ids],
            "atz": pa.array(
                [NOON + datetime.timedelta(hours=i * 50) for i in ids], pa.timestamp("ms", "UTC")
            ),
            "dec": pa.array(list(ids), pa.decimal128(10, 2)),
            "tags": [[f"t{i % 3}", f"u{i % 2}"] for i in ids],
            "nums": [[i, i + 1, i * 2] for i in ids],
            "meta": [{"a": i, "b": f"b{i % 2}", "c": {"d": i * 0.5}} for i in ids],
            "json": pa.array([_document(i) for i in ids], pa.json_()),
            "bin": [bytes([i]) for i in ids],
            "cat": pa.array([f"c{i % 3}" for i in ids]).dictionary_encode(),
            "Mixed Case": ids,
            "camelCase": ids,
        }
    )


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    """The same rows in a directory, and through a gateway."""
    root = tmp_path_factory.mktemp("filters")
    namespace = memory_namespace(root)
    namespace.create_namespace(api.CreateNamespaceRequest(id=["db"]))
    with serve_namespace(namespace) as url:
        once = {"retry_config": {"retries": 0}}
        remote = lancedb.connect("db://db", api_key="k", host_override=url, client_config=once)
        places = (lancedb.connect(root / "plain"), remote)
        yield [each.create_table("t", filtered_rows()) for each in places]


def outcome(table: Any, condition: str) -> list[Any] | None:
    """Return the ids of the rows that a filter selects and their count, or None if refused."""
    try:
        found = table.search().where(condition).select(["id"]).limit(COUNT).to_list()
        return [sorted(each["id"] for each in found), table.count_rows(condition)]
    except (RuntimeError, ValueError, HttpError):
        return None


@pytest.mark.spec("server.md#queries")
@pytest.mark.parametrize("condition", FILTERS)
def test_a_filter_selects_the_rows_that_it_does_in_a_directory(
    tables: list[Any], condition: str
) -> None:
    plain, remote = (outcome(each, condition) for each in tables)
    assert plain is not None
    assert remote == plain


@pytest.mark.spec("server.md#queries")
def test_computed_columns_are_those_of_a_directory(tables: list[Any]) -> None:
    plain, remote = (
        sorted(table.search().select({"id": "id", **COLUMNS}).limit(COUNT).to_list(), key=str)
        for table in tables
    )
    assert sorted(remote, key=lambda row: row["id"]) == sorted(plain, key=lambda row: row["id"])
    for table in tables:
        table.add_columns({f"new_{name}": sql for name, sql in COLUMNS.items()})
    plain, remote = ([table.schema.field(f"new_{name}") for name in COLUMNS] for table in tables)
    assert remote == plain


TEXT = "It's a {text}, with: \\ and -- $1 ? 'x' over (y); /* 'and' */ `z` \"q\"\n" * 3000


@pytest.mark.spec("server.md#queries")
def test_long_texts_with_any_signs_are_written_and_found(tables: list[Any]) -> None:
    for table in tables:
        table.update(where="id = 3", values={"word": TEXT})
        found = table.search().where("id = 3").select(["word"]).to_list()
        assert [each["word"] for each in found] == [TEXT]
        quoted = TEXT.replace("'", "''")
        assert table.count_rows(f"word = '{quoted}' or word IN ('{quoted}', 'x')") == 1


# -- where pylance's namespace needs help ----------------------------------------------------------


VECTORS = pa.list_(pa.float32(), 2)
ROWS = pa.table({"id": range(9), "vector": pa.array([[float(i), 0.0] for i in range(9)], VECTORS)})


class Film(LanceModel):  # type: ignore[misc]
    id: int
    title: str
    vector: Vector(2)  # type: ignore[valid-type]


@pytest.fixture(params=["in a federation", "hidden options", "the root"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    directory = lance_bridge.connect("dir", {"root": str(tmp_path)})
    name = "lake"
    if request.param == "in a federation":
        served: Any = FederatedNamespace({name: directory})
    elif request.param == "hidden options":
        served = FederatedNamespace({name: PublicAnswers(directory, {})})
    else:
        served = directory
        directory.create_namespace(api.CreateNamespaceRequest(id=[name]))
    with serve_namespace(served) as url:
        once = {"retry_config": {"retries": 0}}
        yield lancedb.connect(f"db://{name}", api_key="k", host_override=url, client_config=once)


@pytest.mark.spec("server.md#what-is-refused")
def test_a_table_is_created_from_a_schema(db: Any) -> None:
    table = db.create_table("films", schema=Film)
    assert table.schema == Film.to_arrow_schema()
    assert table.search([1.0, 0.0]).to_list() == []
    table.add([Film(id=1, title="M", vector=[1.0, 0.0])])
    assert table.search([1.0, 0.0]).limit(1).to_pydantic(Film)[0].title == "M"
    assert db.create_table("films", schema=Film, exist_ok=True).count_rows() == 1
    with pytest.raises(ValueError, match="already exists"):
        db.create_table("films", schema=Film)
    assert db.create_table("films", schema=Film, mode="overwrite").count_rows() == 0


@pytest.mark.spec("server.md#what-is-refused")
def test_a_column_gets_another_type(db: Any) -> None:
    table = db.create_table("t", ROWS)
    table.alter_columns({"path": "id", "data_type": pa.int32()})
    table.alter_columns({"path": "id", "rename": "key"})
    assert table.schema.field("key").type == pa.int32()
    with pytest.raises(HttpError, match="cannot change a column to the type fixed_size_list"):
        table.alter_columns({"path": "vector", "data_type": pa.list_(pa.float16(), 2)})


@pytest.mark.spec("server.md#what-is-refused")
def test_each_of_several_vectors_finds_its_rows(db: Any) -> None:
    table = db.create_table("t", ROWS)
    found = table.search([[3.0, 0.0], [7.0, 0.0]]).limit(2).where("id >= 3").to_list()
    assert sorted((row["query_index"], row["id"]) for row in found) == [
        *((0, 3), (0, 4)), *((1, 6), (1, 7)),
    ]  # fmt: skip


@pytest.mark.spec("server.md#what-is-refused")
def test_a_search_of_several_vectors_in_each_row_is_refused(db: Any) -> None:
    rows = pa.table({"vector": pa.array([[[1.0, 0.0], [0.0, 1.0]]], pa.list_(VECTORS))})
    table = db.create_table("t", rows)
    with pytest.raises(HttpError, match="several vectors in each row"):
        table.search([[1.0, 0.0], [0.0, 1.0]]).distance_type("cosine").limit(1).to_list()


@pytest.mark.spec("server.md#what-is-refused")
def test_a_wrong_name_of_a_column_is_a_wrong_request(db: Any) -> None:
    with pytest.raises(ValueError, match=r"\"code\":13.*c\.d cannot contain"):
        db.create_table("t", pa.table({"c.d": [1]}))

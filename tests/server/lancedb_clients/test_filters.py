"""SQL that LanceDB's documentation shows, in a directory and through a gateway."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from typing import Any

import lance_namespace as api
import lancedb
import pyarrow as pa
import pytest
from lancedb.remote.errors import HttpError
from server.gateways import memory_namespace, serve_namespace

pytestmark = [
    pytest.mark.servers,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.spec("server.md#queries", "server.md#lancedb"),
]

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


def rows() -> pa.Table:
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
        yield [each.create_table("t", rows()) for each in places]


def outcome(table: Any, condition: str) -> list[Any] | None:
    """Return the ids of the rows that a filter selects and their count, or None if refused."""
    try:
        found = table.search().where(condition).select(["id"]).limit(COUNT).to_list()
        return [sorted(each["id"] for each in found), table.count_rows(condition)]
    except (RuntimeError, ValueError, HttpError):
        return None


@pytest.mark.parametrize("condition", FILTERS)
def test_a_filter_selects_the_rows_that_it_does_in_a_directory(
    tables: list[Any], condition: str
) -> None:
    plain, remote = (outcome(each, condition) for each in tables)
    assert plain is not None
    assert remote == plain


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


def test_long_texts_with_any_signs_are_written_and_found(tables: list[Any]) -> None:
    for table in tables:
        table.update(where="id = 3", values={"word": TEXT})
        found = table.search().where("id = 3").select(["word"]).to_list()
        assert [each["word"] for each in found] == [TEXT]
        quoted = TEXT.replace("'", "''")
        assert table.count_rows(f"word = '{quoted}' or word IN ('{quoted}', 'x')") == 1

"""SQL functions that would let one request take all of a server's memory."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest
from server.http_requests import done, refused, send_rows

from lance_bridge_server.sql_functions import refuse_functions

pytestmark = [pytest.mark.servers, pytest.mark.spec("server.md#requests")]

TABLE = "/v1/table/films$t"
QUERY = {"k": 1, "vector": {}}
LONG = "repeat('a', 10) = 'b'"


@pytest.fixture(autouse=True)
def _table(http: httpx.Client) -> None:
    done(send_rows(http, f"{TABLE}/create"))


def query_column(http: httpx.Client, expression: str) -> httpx.Response:
    """Query a column that an expression computes."""
    columns = {"column_aliases": {"x": expression}}
    return http.post(f"{TABLE}/query", json={**QUERY, "columns": columns})


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("count_rows", {"predicate": LONG}),
        ("query", {**QUERY, "filter": LONG}),
        ("query", {**QUERY, "columns": {"column_aliases": {"x": "lpad(word, 10)"}}}),
        ("explain_plan", {"query": {**QUERY, "filter": LONG}}),
        ("analyze_plan", {**QUERY, "filter": LONG}),
        ("delete", {"predicate": LONG}),
        ("update", {"updates": [["word", "rpad(word, 10)"]]}),
        ("update", {"updates": [["word", "'x'"]], "predicate": LONG}),
        ("add_columns", {"new_columns": [{"name": "x", "expression": "range(1, 10)"}]}),
        ("add_columns", {"new_columns": [{"name": "x", "computed": "array_repeat(1, 10)"}]}),
        ("backfill_column", {"column": "word", "where": LONG}),
    ],
)
def test_no_field_of_a_request_takes_them(
    http: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    assert "not available on this server" in refused(
        http.post(f"{TABLE}/{path}", json=body), 400, 13
    )


@pytest.mark.parametrize(
    "field", ["when_matched_update_all_filt", "when_not_matched_by_source_delete_filt"]
)
def test_nor_does_a_merge(http: httpx.Client, field: str) -> None:
    answer = send_rows(http, f"{TABLE}/merge_insert", params={"on": "id", field: LONG})
    assert "not available on this server" in refused(answer, 400, 13)


@pytest.mark.parametrize(
    "expression",
    [
        "replace(replace(word, 'a', 'aaaa'), 'a', 'aaaa')",
        "regexp_replace(word, '(.*)', '$1$1$1$1')",
        "array_to_string(string_to_array(word, ''), word)",
        "array_join(string_to_array(word, ''), word)",
        "list_join(string_to_array(word, ''), word)",
        "list_to_string(string_to_array(word, ''), word)",
        "array_replace_all(string_to_array(word, ''), 'a', 'aaaa')",
        "list_replace_n(string_to_array(word, ''), 'a', 'aaaa', 9)",
        "concat_ws(word, '', '', '', '')",
        "encode(encode(word, 'hex'), 'hex')",
        "REPEAT ('a', 10) = 'b'",
        "\"repeat\"('a', 10) = 'b'",
        "`repeat`('a', 10) = 'b'",
        "repeat/* ' */('a', 10) = 'b'",
        "repeat -- '\n('a', 10) = 'b'",
        "word = 'it''s' or repeat('a', 10) = 'it''s'",
        "word <> /* ' */ repeat('a', 10) -- '",
        "\"a'b\" = repeat('a', 10)",
        "word = e'\\'' or repeat('a', 10) = '",
    ],
)
def test_functions_whose_values_multiply_are_refused_in_any_spelling(
    http: httpx.Client, expression: str
) -> None:
    assert "not available on this server" in refused(query_column(http, expression), 400, 13)


FIXED = "FixedSizeList(1000000000 x Int64)"


@pytest.mark.parametrize(
    "expression",
    [
        f"arrow_try_cast(make_array(id), '{FIXED}')",
        "arrow_cast(NULL, 'FixedSizeBinary(1000000000)')",
        f"arrow_cast(nullif(make_array(id), make_array(id)), '{FIXED}')",
        "arrow_cast(NULL, 'FixedSizeList(8000 x FixedSizeList(8000 x Int64))')",
        f"arrow_try_cast(make_array(id), 'Fixed' || '{FIXED[5:]}')",
        f"arrow_try_cast(make_array(id), concat('{FIXED[:-6]}', 'Int64)'))",
        f"concat(', ''Int64'')', arrow_cast(NULL, '{FIXED}'))",
        f"arrow_cast(arrow_try_cast(make_array(id), '{FIXED}'), 'Int64')",
        f"arrow_cast(arrow_try_cast(id, 'Int64'), '{FIXED}')",
        f"arrow_cast(id, 'Int64') = arrow_cast(NULL, '{FIXED}')",
        f"arrow_cast(NULL, 'FixedSizeBinary({'9' * 5000})')",
        "arrow_cast((id, 'Int64')",
        f"arrow_cast /* */ (NULL, '{FIXED}')",
        f"\"arrow_cast\"(NULL, '{FIXED}')",
    ],
)
def test_casts_to_large_types_are_refused(http: httpx.Client, expression: str) -> None:
    assert "cast" in refused(query_column(http, expression), 400, 13)


@pytest.mark.parametrize(
    "expression",
    [
        "arrow_cast(word, 'Timestamp(Second, None)') IS NULL OR true",
        "arrow_cast(NULL, 'Timestamp(Second, Some(\"+01:00\"))') IS NULL",
        "arrow_cast(NULL, 'FixedSizeList(2, FixedSizeList(2, Float32))') IS NULL",
        "arrow_cast(id, 'Decimal128(38, 2)') >= 0",
        "arrow_cast(make_array(id, id), 'FixedSizeList(2 x Float32)') IS NOT NULL",
        "word <> 'arrow_cast(' AND arrow_cast(arrow_cast(id, 'Int32'), 'Utf8') <> ')'",
    ],
)
def test_other_casts_are_taken(http: httpx.Client, expression: str) -> None:
    answer = http.post(f"{TABLE}/count_rows", json={"predicate": expression})
    assert "cast cannot" not in answer.text
    assert "on this server" not in answer.text
    if "Timestamp(Second, None)" not in expression:
        assert done(answer) == 3


@pytest.mark.parametrize(
    "expression",
    ["word = 'repeat (3)'", "word <> 'a' and length(word) > 0", "word = 'it''s range(1)'"],
)
def test_texts_that_look_like_calls_are_taken(http: httpx.Client, expression: str) -> None:
    done(http.post(f"{TABLE}/count_rows", json={"predicate": expression}))


@pytest.mark.parametrize(
    "expression",
    [
        " + ".join(["arrow_cast(1, 'Int8')"] * 3000),
        "arrow_cast(" * 3000 + "1" + ", 'Int8')" * 3000,
        f"arrow_cast(NULL, 'Struct({'9 ' * 400_000})')",
    ],
    ids=["flat", "nested", "numbers"],
)
def test_many_casts_are_checked_in_little_time(expression: str) -> None:
    started = time.thread_time()
    refuse_functions({"filter": expression})
    assert time.thread_time() - started < 2

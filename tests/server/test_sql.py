"""The rules for SQL in requests, and errors of other libraries about it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    PermissionDeniedError,
    TableColumnNotFoundError,
    TableVersionNotFoundError,
)
from server.gateways import serve_namespace
from servers.processes import public_directory, without_privileges

import lance_bridge
from lance_bridge.testing.calls import ipc
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.operations import OPERATIONS
from lance_bridge_server.queries import allowed_sql
from lance_bridge_server.queries.calling import call_namespace

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#queries")]

ROWS = pa.table({"id": [1, 2], "word": ["a", "b"]})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    return lance.write_dataset(ROWS, str(tmp_path_factory.mktemp("sql") / "t.lance"))


@pytest.mark.parametrize(
    "expression",
    [
        "a between 1 and 2 or not a in (1, 2)",
        "word like 'x%' escape '!' and word ilike '%y'",
        "cast(a as float[3]) is not null",
        "cast(a as decimal(10, 2)) > 1 and try_cast(a as varchar(10)) = 'x'",
        "a::int = 1e5",
        "extract(year from a) > 1",
        "substring(a from 1 for 2) = trim(both 'x' from b)",
        "position('x' in a) = 1",
        "a > now() - interval '1' day",
        "case a when 1 then 2 else 3 end = 2",
        "`x y`.z[1] = 2",
        "a = date '2020-01-01' and b < timestamp '2020-01-01 00:00:00'",
        "a is distinct from abs(b)",
        "x'ab' = a || b",
        "a -- a comment\n = 1",
        "replace(replace(lower(a), ' ', '-'), 'ß', 'ss') = regexp_replace(a, '(x+)y', '\\1', 'g')",
        "concat_ws(', ', a, b) = array_to_string(c, ',', '?') and list_join(c, '; ') = 'x'",
        "lpad(a, 10, '0') = rpad(a, 8192) or repeat(repeat(a, 10), 10) = translate(a, 'ä', 'a')",
        "encode(decode(a, 'hex'), 'base64') = 'x' and array_has(range(0, 100), b)",
        "array_repeat(b, 3) = array_resize(c, 5) or array_replace_all(c, b, 'x') = c",
        "arrow_cast(a, 'FixedSizeList(3 x Float32)') is not null",
        "a = '" + "x" * 1_000_000 + "'",
        "a in (" + ",".join(map(str, range(100_000))) + ")",
        "a in (" + ",".join(f"'{i}'" for i in range(100_000)) + ")",
        " or ".join(["word = 'x'"] * allowed_sql.MAX_CONDITIONS),
        "word in (" + ",".join(f"'it''s \\{i} -- $'" for i in range(20_000)) + ", NULL)",
        "'" + "it''s a {text}, with: \\ and -- $1 ? over (x); " * 20_000 + "' = word",
        "[" + ", ".join(f"-{i}.5e-07" for i in range(16_384)) + "] = vector",
    ],
    ids=lambda text: text[:30],
)
def test_expressions_of_clients_are_accepted(expression: str) -> None:
    allowed_sql.check_expression(expression)


LONG = "x" * (allowed_sql.MAX_TEXT + 1)
_LIST = ", ".join(map(str, range(20)))


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("+".join(["nullif(id, 1)"] * 800) + " > 1", "too long"),
        ("+".join(["id"] * 3000) + " > 1", "too long"),
        (" or ".join(["id = 1"] * (allowed_sql.MAX_CONDITIONS + 1)), "too long"),
        ("(" * 60 + "id" + ")" * 60, "recursion limit"),
        (f"length(concat(word, '{LONG}')) > 1", "is too long where it is used"),
        (f"word || '{LONG}' = 'x'", "is too long where it is used"),
        (f"case when true then '{LONG}' end = word", "is too long where it is used"),
        (f"word is distinct from lower('{LONG}')", "is too long where it is used"),
        (f"levenshtein(word, '{'a' * 1001}') > 1", "is too long where it is used"),
        ("repeat /* */ (word, 101) = 'x'", "function repeat is not available"),
        ("word is distinct from `Repeat`(word, 101)", "function repeat is not available"),
        ("repeat(repeat(word, 11), 10) = 'x'", "at most 100 times as long as its arguments"),
        ("repeat(word, id) = 'x'", "unless literals"),
        ("repeat(word, -1) = 'x'", "unless literals"),
        ("repeat(word, 2 * 2) = 'x'", "unless literals"),
        ("repeat(word) = 'x'", "unless literals"),
        ("replace(word, 'x', word) = 'x'", "unless literals"),
        (f"replace(word, '', '{'x' * 100}') = 'x'", "unless literals"),
        (f"regexp_replace(word, 'x', '{'x' * 100}') = 'x'", "unless literals"),
        ("translate(word, 'x', word) = 'x'", "unless literals"),
        ("lpad(word, 8193) = 'x'", "unless literals"),
        ("rpad(word, 100, '" + "x" * 100 + "') = 'x'", "unless literals"),
        ("rpad(word, 10, word) = 'x'", "unless literals"),
        ("concat_ws(word, word, word) = 'x'", "unless literals"),
        ("array_to_string(words, word) = 'x'", "unless literals"),
        ("list_join(words, ',', word) = 'x'", "unless literals"),
        ("encode(" * 7 + "word" + ", 'hex')" * 7 + " = 'x'", "unless literals"),
        ("range(200, 1) is null", "unless literals"),
        ("generate_series(101) is null", "unless literals"),
        ("other(word) = 'x'", "function other is not available"),
        ("a.other(word) = 'x'", "function a.other is not available"),
        ("count(*) > 1", "function count is not available"),
        ("sum(id) over () > 1", "window"),
        ("cast(id as float[2147483647]) is null", "fixed size"),
        ("cast(id as float[100][100]) is null", "fixed size"),
        ("id::float[2147483647] is null", "fixed size"),
        ("arrow_cast(id, 'FixedSizeList(2147483647 x Float32)') is null", "fixed size"),
        ("arrow_cast(id, word) is null", "string literal"),
        ("exists(select 1)", "EXISTS"),
        ("id in (select 1)", "SUBQUERY"),
        ("id = ?", "placeholder"),
        ("x -> x + 1", "LAMBDA"),
        ("id) or (id", "bracket"),
        ("id = 1; drop table t", "found ;"),
        ("id = 1 union select 1", "found union"),
        ("id >", "expected an expression"),
        ("/*", "comment"),
        ("word = 'x", "Unterminated"),
        (f"id in ({_LIST}, other())", "function other"),
        (f"[{_LIST}, other()] = vector", "function other"),
        (f"case when true then [{_LIST}, '{LONG}'] end = words", "is too long where it is used"),
        ("+".join(["id"] * allowed_sql.MAX_WORDS), "too long"),
        ("'it''s' = 'x' -- '\n or other()", "function other"),
        (f"/* /* */ ' */ {'+'.join(['id'] * 25_000)} = 1 /* ' */", "words and signs"),
        (f"'(1,' || other() || ',{_LIST})' = word", "function other"),
        (f"word = '(' or id in ({_LIST}) or other() or word = ')'", "function other"),
    ],
)
def test_other_expressions_are_refused(expression: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot be planned") as caught:
        allowed_sql.check_expression(expression)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("id >", "expected an expression, found the end"),
        ("id = 1 union select 1", "expected ), found union"),
        ("lower(word", "expected ), found the end"),
    ],
)
def test_wrong_syntax_is_described_without_the_statement_around_it(
    expression: str, problem: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        allowed_sql.check_expression(expression)
    assert str(caught.value) == f"The expression {expression!r} cannot be planned: {problem}"


BY_NAME = {each.name: each for each in OPERATIONS}
WRONG = "other()"


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("query_table", {"k": 1, "vector": {}, "filter": WRONG}),
        ("query_table", {"k": 1, "vector": {}, "columns": {"column_aliases": {"c": WRONG}}}),
        ("explain_table_query_plan", {"query": {"k": 1, "vector": {}, "filter": WRONG}}),
        ("update_table", {"updates": [["word", WRONG]]}),
        ("update_table", {"predicate": WRONG, "updates": [["word", "'x'"]]}),
        ("delete_from_table", {"predicate": WRONG}),
        ("count_table_rows", {"predicate": WRONG}),
        ("merge_insert_into_table", {"when_matched_update_all_filt": WRONG}),
        ("merge_insert_into_table", {"when_not_matched_by_source_delete_filt": WRONG}),
        ("alter_table_add_columns", {"new_columns": [{"name": "c", "expression": WRONG}]}),
    ],
)
def test_sql_in_every_field_is_checked(name: str, fields: dict[str, Any]) -> None:
    operation = BY_NAME[name]
    request = operation.request.model_validate({"id": ["t"], **fields})
    with pytest.raises(InvalidInputError, match="function other is not available"):
        call_namespace(FederatedNamespace({"a": absent}), operation, [request])


def absent() -> Any:
    """Fail if a catalog is connected before the SQL for it was checked."""
    raise AssertionError


def test_functions_in_the_lists_are_those_of_lance(dataset: lance.LanceDataset) -> None:
    unknown = []
    for name in sorted(allowed_sql.FUNCTIONS | allowed_sql.GROWING.keys()):
        try:
            dataset.scanner(filter=f"{name}() = 1").explain_plan()
        except BaseException as error:  # noqa: BLE001 - a wrong number of arguments can panic
            if f"Invalid function '{name}'" in str(error):
                unknown.append(name)
    assert not unknown


# -- errors of pylance's namespaces ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "fields", "error", "words"),
    [
        ("query_table", {"filter": "none = 1"}, TableColumnNotFoundError, "column 'none'"),
        ("query_table", {"columns": {"column_names": ["none"]}}, TableColumnNotFoundError,
         "column 'none'"),
        ("query_table", {"filter": "id = true"}, InvalidInputError, "the value true does not fit"),
        ("query_table", {"filter": "id / (id - id) = 1"}, InvalidInputError, "Divide by zero"),
        ("query_table", {"filter": "abs(word) = 1"}, InvalidInputError, "expects Numeric"),
        ("query_table", {"filter": "cast(word as int) = 1"}, InvalidInputError, "Cannot cast"),
        ("query_table", {"filter": "id"}, InvalidInputError, "does not return a boolean"),
        ("count_table_rows", {"predicate": "none = 1"}, TableColumnNotFoundError, "column 'none'"),
        ("update_table", {"updates": [["id", "none"]]}, TableColumnNotFoundError, "column 'none'"),
        ("update_table", {"updates": [["id", "id / (id - id)"]]}, InvalidInputError,
         "Divide by zero"),
        ("delete_from_table", {"predicate": "id"}, InvalidInputError, "not return a boolean"),
        ("explain_table_query_plan", {"query": {"k": 1, "vector": {}, "filter": "id"}},
         InvalidInputError, "does not return a boolean"),
        ("query_table", {"nprobes": 1 << 40}, InvalidInputError, "number in the request"),
        ("query_table", {"filter": "regexp_like(word, 'a{1000000}')"}, InvalidInputError,
         "did not compile"),
        ("query_table", {"filter": "st_area(word) = 1"}, InvalidInputError, "WKT"),
        ("query_table", {"columns": {"column_aliases": {"c": "st_area(word)"}}}, InvalidInputError,
         "Invalid type"),
        ("query_table", {"columns": {"column_aliases": {"c": "st_contains([id], [id])"}}},
         InvalidInputError, "GeoArrow type"),
        ("query_table", {"filter": "id between word and now()"}, InvalidInputError, "coerce types"),
        ("query_table", {"filter": "now() > timestamp 'x'"}, InvalidInputError,
         "Error parsing timestamp"),
        ("update_table", {"updates": [["word", "regexp_like(word, 'a{1000000}')"]]},
         InvalidInputError, "did not compile"),
        ("update_table", {"updates": [["word", "st_area(word)"]]}, InvalidInputError, "WKT"),
        ("create_table_tag", {"tag": "\u00e9", "version": 1}, InvalidInputError, "Tag name"),
        ("create_table_tag", {"tag": "a" * 5000, "version": 1}, InvalidInputError, "Tag name"),
        ("get_table_tag_version", {"tag": "a" * 5000}, InvalidInputError, "name in the request"),
        ("describe_table", {"id": ["a" * 5000]}, InvalidInputError, "name in the request"),
        ("query_table", {"version": 99}, TableVersionNotFoundError, "version 99"),
    ],
)  # fmt: skip
def test_wrong_expressions_have_readable_errors_in_a_directory(
    dataset: lance.LanceDataset,
    name: str,
    fields: dict[str, Any],
    error: type[LanceNamespaceError],
    words: str,
) -> None:
    operation = BY_NAME[name]
    needed = {"k": 1, "vector": {}} if name == "query_table" else {}
    request = operation.request.model_validate({"id": ["t"], **needed, **fields})
    namespace = lance_bridge.connect("dir", root=str(Path(dataset.uri).parent))
    with pytest.raises(error) as caught:
        call_namespace(namespace, operation, [request])
    assert words in str(caught.value)
    assert not re.search(r"\.rs|LanceError|Failed to run|\w \{ ", str(caught.value))


def test_a_directory_says_which_type_it_does_not_know(tmp_path: Path) -> None:
    namespace = lance_bridge.connect("dir", root=str(tmp_path))
    namespace.create_table(api.CreateTableRequest(id=["t"]), ipc(pa.table({"id": [1]})))
    operation, dtype = BY_NAME["alter_table_alter_columns"], "fixed_size_binary:2147483647"
    fields = {"id": ["t"], "alterations": [{"path": "id", "data_type": {"type": dtype}}]}
    with pytest.raises(InvalidInputError, match=f"Unsupported Arrow type: {dtype}$"):
        call_namespace(namespace, operation, [operation.request.model_validate(fields)])


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        (
            "alter_columns",
            {
                "alterations": [
                    {"path": "id", "data_type": {"type": "fixed_size_binary:2147483647"}}
                ]
            },
            400,
        ),
        ("add_columns", {"new_columns": [{"name": "id", "expression": "1"}]}, 400),
        ("create_index", {"column": "no", "index_type": "IVF_PQ"}, 404),
        ("restore", {"version": 999}, 404),
    ],
)
def test_a_gateway_shows_no_places_in_the_source_of_lance(
    tmp_path: Path, path: str, fields: dict[str, Any], status: int
) -> None:
    catalog = lance_bridge.connect("dir", root=str(tmp_path))
    catalog.create_table(api.CreateTableRequest(id=["t"]), ipc(pa.table({"id": [1]})))
    with serve_namespace(FederatedNamespace({"prod": catalog})) as address:
        answer = httpx.post(f"{address}/v1/table/prod$t/{path}", json=fields)
    assert answer.status_code == status
    assert not re.search(r"/rust|\.rs|Location \{", answer.text), answer.text


@pytest.mark.parametrize("name", ["my col", "select", "a.b c", "x'; --", "nullif(id,1)"])
def test_names_of_updated_columns_are_no_expressions(name: str) -> None:
    """They are those of pylance, which knows whether there is such a column."""
    request = BY_NAME["update_table"].request.model_validate(
        {"id": ["t"], "updates": [[name, "5"]]}
    )
    allowed_sql.check_request(request)


@pytest.mark.parametrize("source", ["my col", "select", "a.b c"])
def test_sources_of_aliases_may_be_paths_of_fields(source: str) -> None:
    fields = {"id": ["t"], "k": 1, "vector": {}, "columns": {"column_aliases": {"c": source}}}
    allowed_sql.check_request(BY_NAME["query_table"].request.model_validate(fields))


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("query_table", {"k": 1, "vector": {}}),
        ("count_table_rows", {"predicate": "id > 1"}),
        ("delete_from_table", {"predicate": "id > 1"}),
    ],
)
def test_files_in_a_directory_that_may_not_be_read_are_permission_denied(
    name: str, fields: dict[str, Any]
) -> None:
    request = BY_NAME[name].request.model_validate({"id": ["t"], **fields})
    with public_directory() as place:
        lance.write_dataset(pa.table({"id": [1, 2]}), str(place / "t.lance"))
        for each in place.rglob("data/*"):
            each.chmod(0)
        namespace = lance_bridge.connect("dir", root=str(place))
        with without_privileges(), pytest.raises(PermissionDeniedError) as caught:
            call_namespace(namespace, BY_NAME[name], [request])
    assert str(caught.value).endswith("Permission denied")

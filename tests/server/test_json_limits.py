"""JSON that is small to send and large to read: refused in little time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from lance_namespace.errors import InvalidInputError
from server.gateways import refused, serve_namespace

from lance_bridge_server import operations
from lance_bridge_server.http import calls
from lance_bridge_server.operations import OPERATIONS, Call

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#request-limits")]

QUERY = next(each for each in OPERATIONS if each.name == "query_table")


def make_model(body: str) -> Any:
    fields = calls._parse_json(body.encode())
    return Call(QUERY, {**fields, "id": ["films", "t"]}, "$", {}).model()


def query(vector: str = "{}", **fields: str) -> str:
    more = "".join(f', "{name}": {value}' for name, value in fields.items())
    return f'{{"k": 1, "vector": {vector}{more}}}'


def many(part: str, count: int) -> str:
    return f"[{','.join([part] * count)}]"


def members(name: str, count: int) -> str:
    return f"{{{','.join(name.format(i) for i in range(count))}}}"


def single(part: str, count: int = 60_000) -> str:
    return query(f'{{"single_vector": {many(part, count)}}}')


def multi(vectors: str) -> str:
    return query(f'{{"multi_vector": {vectors}}}')


OTHERS = "50000 values besides the numbers"
MANY = 60_000
REFUSED: dict[str, tuple[Callable[[], str], str]] = {
    "containers": (lambda: query(many("[]", 100_000)), "100000 arrays and objects"),
    "objects": (lambda: query(many("{}", 100_000)), "100000 arrays and objects"),
    "numbers": (lambda: single("0", 2_000_002), "2000000 values"),
    "members": (lambda: query(context=members('"k{}":"v"', MANY)), "50000 members"),
    "members with spaces": (lambda: query(context=members('"k{}" \n:"v"', MANY)), "members"),
    "members with quotes": (lambda: query(context=members('"k{}\\"":"v"', MANY)), "members"),
    "members with slashes": (lambda: query(context=members('"k{}\\\\":"v"', MANY)), "members"),
    "nulls in a vector": (lambda: single("null"), OTHERS),
    "texts in a vector": (lambda: single('""'), OTHERS),
    "booleans in a vector": (lambda: single("true"), OTHERS),
    "lists in a vector": (lambda: single("[0]"), OTHERS),
    "numbers in place of vectors": (lambda: multi(many("0", MANY)), OTHERS),
    "objects in vectors": (lambda: multi(many("{}", MANY)), OTHERS),
    "numbers elsewhere": (lambda: query(columns=many("0", MANY)), OTHERS),
    "numbers of another name": (lambda: query(context=f'{{"x": {many("0", MANY)}}}'), OTHERS),
    "several lists": (lambda: query(a=many("1", 30_000), b=many("1", 30_000)), OTHERS),
}


@pytest.mark.parametrize("name", REFUSED)
def test_json_that_takes_long_is_refused(name: str) -> None:
    make, text = REFUSED[name]
    body = make()
    began = time.thread_time()
    with pytest.raises(InvalidInputError, match=text):
        make_model(body)
    assert time.thread_time() - began < 1


@pytest.mark.parametrize("name", ["nulls in a vector", "members"])
def test_a_gateway_refuses_json_that_takes_long(namespace: Any, name: str) -> None:
    headers = {"content-type": "application/json"}
    make, text = REFUSED[name]
    with serve_namespace(namespace) as address:
        answer = httpx.post(f"{address}/v1/table/films$t/query", content=make(), headers=headers)
        assert text in refused(answer, 400, 13)


def test_thousands_of_wrong_values_are_counted() -> None:
    """A list of them takes as long as their number is."""
    began = time.thread_time()
    with pytest.raises(InvalidInputError, match=r"Not a QueryTableRequest: \d+ values are wrong"):
        make_model(single("null", 49_000))
    assert time.thread_time() - began < 1


@pytest.mark.parametrize(
    "body",
    [
        single("0.5"),
        single("1"),
        multi(many(many("0.5", 1000), 60)),
        multi(many("[0.5, 1]", MANY)),
    ],
    ids=["floats", "integers", "vectors", "small vectors"],
)
def test_vectors_may_have_many_numbers(body: str) -> None:
    vector = make_model(body).vector
    numbers = vector.single_vector or [each for one in vector.multi_vector for each in one]
    assert len(numbers) >= 60_000


def test_vectors_of_lancedb_and_of_plans_may_have_many_numbers() -> None:
    for vector in (many("0.5", 60_000), many(many("0.5", 1000), 60)):
        body = f'{{"query": {query(vector)}, "vector": {vector}}}'
        assert calls._parse_json(body.encode())["query"]["k"] == 1


@pytest.mark.parametrize("text", ["a: b", 'a "b": c', 'a\\\\"b"'])
def test_colons_in_texts_are_not_members(text: str) -> None:
    body = json.dumps({"filter": text * 250_000, "other": [text + ":"] * 49_000}).encode()
    assert calls._parse_json(body)["filter"] == text * 250_000


@pytest.mark.parametrize("vector", [{"v": [0.0] * 100_000}, {"v": [[0.0] * 100] * 2}])
def test_the_numbers_of_a_vector_are_not_changed_one_by_one(vector: dict[str, Any]) -> None:
    found = operations._normalize_json({"k": 1.0, "versions": [2.0], "vector": vector})
    assert (found["k"], found["versions"]) == (1, [2])
    assert found["vector"] is vector

"""Messages of Lance, DataFusion and object stores: a user reads only what concerns a user."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import lance
import lance_namespace
import pyarrow as pa
import pytest
from lance_namespace.errors import (
    ErrorCode,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
)
from servers.processes import free_port, without_privileges
from servers.replies import reply_server

import lance_bridge
from lance_bridge.errors import as_namespace_error, translate_lance_errors
from lance_bridge.lance_texts import (
    NO_CREDENTIALS,
    cut_before_place,
    cut_message,
    find_missing_column,
    find_other_schema,
    find_wrong_part,
    is_for_developers,
    without_places,
)
from lance_bridge.native_errors import readable_error, readable_errors

pytestmark = [pytest.mark.quick, pytest.mark.spec("cli.md#exit-codes")]

DEVELOPERS = re.compile(
    r"\.rs\b|\w \{ |LanceError|os error|max_retries|<\w+>|SELECT 1|Line: \d|github\.com|Backtrace"
)
"""What no message has that a user reads."""
ROWS = pa.table(
    {
        "id": [1, 2],
        "name": ["a", "b"],
        "vector": pa.array([[0.5, 1.0]] * 2, pa.list_(pa.float32(), 2)),
    }
)
KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
OPTIONS = {
    "aws_endpoint": f"http://127.0.0.1:{free_port()}",
    "aws_allow_http": "true",
    "aws_region": "us-east-1",
    "client_max_retries": "1",
    "client_retry_timeout": "2",
}
DENIED = ErrorCode.PERMISSION_DENIED
PLACE = "/rust/lance/src/dataset.rs:651:35"
XML = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>NoSuchBucket</Code>'
    "<Message>The specified bucket does not exist</Message><RequestId>1</RequestId></Error>"
)


@pytest.mark.parametrize(
    ("raw", "cut"),
    [
        ("Table not found: sales.orders", "Table not found: sales.orders"),
        (f"LanceError(IO): no such file, {PLACE}", "no such file"),
        ("expected a, /data/b", "expected a, /data/b"),
        (
            "Failed to write: IO { source: Os { code: 2, kind: NotFound, message: "
            '"No such file or directory" }, backtrace: MaybeBacktrace }',
            "Failed to write: No such file or directory",
        ),
        (
            "LanceError(IO): Generic LocalFileSystem error: Unable to create dir /proc/x: "
            f"Permission denied (os error 13), {PLACE}",
            "Unable to create dir /proc/x: Permission denied",
        ),
        (
            "Generic S3 error: Error performing PUT http://s3:9000/b/t.lance?x=1 in 2.1s, after 3 "
            "retries, max_retries: 3, retry_timeout: 180s  - HTTP error: error sending request",
            "PUT http://s3:9000/b/t.lance, tried 4 times: error sending request",
        ),
        (
            "Generic S3 error: Error performing GET http://s3:9000/b/t in 5ms - Server returned "
            f"non-2xx status code: 404 Not Found: {XML}, {PLACE}",
            "GET http://s3:9000/b/t: 404 Not Found: NoSuchBucket: The specified bucket does not "
            "exist",
        ),
        (
            "Generic GCS error: Error performing GET https://storage.googleapis.com/b/t in 5ms - "
            'Client error with status 403 Forbidden: {"error": {"code": 403, "message": "No."}}',
            "GET https://storage.googleapis.com/b/t: 403 Forbidden: 403: No.",
        ),
        (
            "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 3s",
            NO_CREDENTIALS,
        ),
        ("x" * 1000, "x" * 300),
    ],
)
def test_a_message_is_cut_to_what_concerns_the_user(raw: str, cut: str) -> None:
    assert cut_message(raw) == cut
    assert not DEVELOPERS.search(cut_message(raw))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a table is."""
    place = tmp_path_factory.mktemp("texts") / "t.lance"
    lance.write_dataset(ROWS, str(place))
    return place


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("id >", "expected an expression, found the end"),
        ("(id >\n)", "expected an expression, found the end"),
        ("(lower(name) >)", "expected an expression, found )"),
        ("id between 1", "expected AND, found the end"),
        ("name = '", "Unterminated string literal"),
        ("nope = 1", "No field named nope"),
        ("id = 'x'", 'the value "x" does not fit the type Int64'),
        ("vector > 3", "the value 3 does not fit the type FixedSizeList"),
        ("lower(id) = 'a'", "Function 'lower' requires String"),
        ("name like 3", "There isn't a common type to coerce"),
        ("count(id) > 1", "does not support logical expression AggregateFunction"),
        ("regexp_like(name, '(')", "regular expression: unclosed group"),
        ("name > date '2020'", "Cannot cast string '2020' to value of Date32 type"),
        ("id / 0 = 1", "Divide by zero"),
    ],
)
def test_what_lance_says_of_a_condition_is_cut(place: Path, condition: str, said: str) -> None:
    for call in (lance.dataset(str(place)).to_table, lance.dataset(str(place)).count_rows):
        with pytest.raises((ValueError, OSError)) as raised:
            call(filter=condition)
        assert DEVELOPERS.search(str(raised.value)), "Lance has other texts now"
        assert said in cut_message(str(raised.value))
        assert not DEVELOPERS.search(cut_message(str(raised.value)))


def missing_file(place: Path, directory: Path) -> None:
    shutil.copytree(place, directory / "t.lance")
    for each in (directory / "t.lance" / "data").iterdir():
        each.unlink()
    lance.dataset(str(directory / "t.lance")).to_table()


def damaged_manifest(place: Path, directory: Path) -> None:
    shutil.copytree(place, directory / "t.lance")
    for each in (directory / "t.lance" / "_versions").iterdir():
        each.write_bytes(b"-" * 70)
    lance.dataset(str(directory / "t.lance"))


def file_in_the_way(_place: Path, directory: Path) -> None:
    (directory / "file").touch()
    lance.write_dataset(ROWS, str(directory / "file" / "t.lance"))


def no_directory(_place: Path, _directory: Path) -> None:
    lance.write_dataset(ROWS, "/proc/none/t.lance")


def in_a_namespace(_place: Path, _directory: Path) -> None:
    namespace = lance_namespace.connect("dir", {"root": "/proc/none"})
    lance.write_dataset(ROWS, namespace_client=namespace, table_id=["films"])


def store_that_does_not_answer(_place: Path, _directory: Path) -> None:
    lance.dataset("s3://lake/t.lance", storage_options=OPTIONS | KEYS)


def store_without_credentials(_place: Path, _directory: Path) -> None:
    lance.dataset("s3://lake/t.lance", storage_options=OPTIONS)


@pytest.mark.parametrize(
    ("fail", "said"),
    [
        (missing_file, "Not found: /"),
        (damaged_manifest, "file size is too small"),
        (file_in_the_way, "_versions: Not a directory"),
        (no_directory, "No such file or directory"),
        (in_a_namespace, "No such file or directory"),
        (store_that_does_not_answer, "tried 2 times: error sending request"),
        (store_without_credentials, NO_CREDENTIALS),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_lance_says_of_storage_is_cut(
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fail: Callable[[Path, Path], None],
    said: str,
) -> None:
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises((OSError, ValueError, LanceNamespaceError)) as raised:
        fail(place, tmp_path)
    assert is_for_developers(str(raised.value)), "Lance has other texts now"
    assert said in cut_message(str(raised.value))
    assert not DEVELOPERS.search(cut_message(str(raised.value)))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Unable to open file /t/a.lance: Permission denied (os error 13)", DENIED),
        ("Unable to create dir /t: Operation not permitted (os error 1)", DENIED),
        ("Server returned non-2xx status code: 403 Forbidden: ", DENIED),
        ("Client error with status 403 Forbidden: No", DENIED),
        ("Server returned non-2xx status code: 401 Unauthorized: ", ErrorCode.UNAUTHENTICATED),
        (
            "non-2xx status code: 403 Forbidden: <Error><Code>ExpiredToken</Code></Error>",
            ErrorCode.UNAUTHENTICATED,
        ),
        ("No such file or directory (os error 2)", ErrorCode.SERVICE_UNAVAILABLE),
        ("Server returned non-2xx status code: 503 Slow Down", ErrorCode.SERVICE_UNAVAILABLE),
        ("Error performing GET http://s3/b/403 in 5ms", ErrorCode.SERVICE_UNAVAILABLE),
    ],
)
def test_a_refusal_of_storage_has_its_code(text: str, code: ErrorCode) -> None:
    error = as_namespace_error("Table 't'", OSError(f"LanceError(IO): {text}, {PLACE}"))
    assert error.code == code


@pytest.mark.parametrize("hidden", ["data", "_versions"])
def test_files_that_may_not_be_read_are_permission_denied(
    place: Path, tmp_path: Path, hidden: str
) -> None:
    shutil.copytree(place, tmp_path / "t.lance")
    (tmp_path / "t.lance" / hidden).chmod(0)
    with (
        without_privileges(),
        pytest.raises(PermissionDeniedError, match=r"^Table 't': .*Permission denied$"),
        translate_lance_errors("Table 't'"),
    ):
        lance.dataset(str(tmp_path / "t.lance")).to_table()


RUST = "location: Location { file: x"


@pytest.mark.parametrize(
    ("text", "column"),
    [
        (f"No field named nope. Valid fields are id, {RUST}", "nope"),
        (f'FieldNotFound {{ field: Column {{ relation: None, name: "a\\"b" }} }}, {RUST}', 'a"b'),
        (f"column nope does not exist in schema, {RUST}", "nope"),
        ("No field named nope. Valid fields are id", None),
    ],
)
def test_a_namespace_of_pylance_names_the_missing_column(text: str, column: str | None) -> None:
    assert find_missing_column(text) == column


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (f'InvalidInput {{ source: "Invalid user input: no", {RUST}', "no"),
        (f'IO {{ source: "the disk is gone", {RUST}', ""),
        (f"Failed to run update_table on table at '/t': LanceError(Arrow): no, {PLACE}", "no"),
        ("Failed to read IPC stream: IoError(x)", "Failed to read IPC stream"),
        ("File name too long (os error 36)", "a name in the request is too long"),
        ("Table not found: t", ""),
    ],
)
def test_a_namespace_of_pylance_says_what_is_wrong_with_the_request(text: str, wrong: str) -> None:
    assert find_wrong_part(text, is_known=False, is_of_value=False) == wrong


def test_rows_of_another_schema_are_described() -> None:
    text = f"LanceError(Schema): Append with different schema: `x` should be int32, {PLACE}"
    assert find_other_schema(text) == "`x` should be int32"
    assert find_other_schema("Table not found: t") == ""


def test_types_in_a_message_are_not_taken_for_an_error() -> None:
    text = 'Cannot cast Struct([Field { name: "a", data_type: Int64 }]) to Int64'
    assert cut_message(text) == text
    assert not is_for_developers(text)


def test_a_long_message_takes_little_time() -> None:
    """It can repeat an expression of a client."""
    began = time.process_time()
    for part in ("A(", "A { ", "a: ", "(", "LanceError(A): "):
        found = cut_message(f"SELECT 1 FROM t WHERE {part * 500_000} (Expected: x, found: EOF)")
        assert len(found) <= 300
        is_for_developers(part * 500_000)
    assert time.process_time() - began < 5


def test_an_address_in_an_expression_says_nothing_of_credentials() -> None:
    said = cut_message(
        "Error parsing statement: SELECT 1 FROM t WHERE ip = '169.254.169.254' and "
        "(sql parser error: Expected: an expression, found: EOF)"
    )
    assert said == "expected an expression, found the end"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"not found, {PLACE} (in t)", "not found (in t)"),
        (
            'Index { message: "no", location: Location { file: "/a/b.rs", line: 1, column: 2 }, '
            "backtrace: MaybeBacktrace } (in t)",
            'Index { message: "no" } (in t)',
        ),
        ('a, location: Location { file: "/build/a (in t)', "a"),
        (
            "the column location: Locations is no place",
            "the column location: Locations is no place",
        ),
    ],
)
def test_messages_have_no_places(text: str, shown: str) -> None:
    assert without_places(text) == shown


@pytest.mark.parametrize("size", range(12, 50))
def test_a_place_is_not_cut(size: int) -> None:
    text = f"no such type, {PLACE} and more text that is long enough"
    assert "rust" not in without_places(cut_before_place(text, size))
    assert cut_before_place(text, size).startswith("no such type")


def test_places_are_found_in_a_long_message_in_little_time() -> None:
    text = "a.rs:" * 200_000 + " location: Location {" * 50_000
    begun = time.monotonic()
    without_places(text)
    cut_before_place(text, 300)
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            'hyper_util::client::legacy::Error(Connect, ConnectError("tcp connect error", '
            'Os { code: 111, kind: ConnectionRefused, message: "Connection refused" }))',
            "Connection refused",
        ),
        (
            'hyper_util::client::legacy::Error(Connect, ConnectError("dns error", Custom { kind: '
            'Uncategorized, error: "failed to lookup address information: Unknown name" }))',
            "failed to lookup address information: Unknown name",
        ),
        ("TimedOut", "no response in time"),
        ("hyper::Error(IncompleteMessage)", "connection lost"),
    ],
)
def test_a_server_that_does_not_respond_is_named_with_the_reason(source: str, reason: str) -> None:
    raw = (
        "Service unavailable: Failed to execute request: reqwest::Error { kind: Request, "
        f'url: "http://catalog:8181/v1/namespace/$/list?delimiter=%24", source: {source} }}'
    )
    error = readable_error("list_namespaces", [], ServiceUnavailableError(raw))
    assert isinstance(error, ServiceUnavailableError)
    assert str(error).startswith(
        "list_namespaces: the catalog's server did not respond: "
        f"http://catalog:8181/v1/namespace/$/list: {reason}. Try again"
    )


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("200 OK", ErrorCode.SERVICE_UNAVAILABLE),
        ("301 Moved Permanently", ErrorCode.SERVICE_UNAVAILABLE),
        ("401 Unauthorized", ErrorCode.UNAUTHENTICATED),
        ("403 Forbidden", ErrorCode.PERMISSION_DENIED),
        ("404 Not Found", ErrorCode.SERVICE_UNAVAILABLE),
        ("429 Too Many Requests", ErrorCode.THROTTLING),
        ("502 Bad Gateway", ErrorCode.SERVICE_UNAVAILABLE),
    ],
)
def test_a_server_of_something_else_is_no_catalog(status: str, code: ErrorCode) -> None:
    with reply_server() as replies:
        replies.status, replies.body = int(status[:3]), "<html>a page</html>"
        namespace = lance_bridge.connect("rest", uri=replies.address)
        with (
            pytest.raises(LanceNamespaceError) as raised,
            readable_errors("list_tables", ["a"]),
        ):
            namespace.list_tables(lance_namespace.ListTablesRequest(id=["a"]))
    assert raised.value.code == code
    assert str(raised.value).startswith(
        f"list_tables: the catalog's server responded with {status}"
    )
    assert "html" not in str(raised.value)

"""``specs/spark.md`` says what the code does: options, types, functions and errors are compared.

Its snippets run, in one session on a real metastore.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from typing import Any

import lance_namespace.errors as lance_errors
import pyarrow as pa
import pytest
from lance_namespace import CreateNamespaceRequest, CreateTableRequest
from lance_namespace.errors import LanceNamespaceError
from servers.metastores import Metastores
from servers.sparks import Spark

import lance_bridge_spark
from lance_bridge.dataset.searches import DEFAULT_K
from lance_bridge.operations.data import NEED_ENGINE
from lance_bridge.testing.calls import ipc
from lance_bridge_hive import HiveNamespace
from lance_bridge_spark import schemas
from lance_bridge_spark.source import options
from lance_bridge_spark.source.streams import FAIL
from lance_bridge_spark.source.worker_calls import condition

from .snippet_processes import run_snippets
from .specs import DOCUMENTS, REPOSITORY, operations
from .test_documents import URI

pytestmark = pytest.mark.checks

SPARK_SPEC = DOCUMENTS["spark"]
TEXT = SPARK_SPEC.path.read_text(encoding="utf-8")
OPTION_TABLES = [
    "Choosing a Table",
    *(f"{kind} Options" for kind in ("Read", "Search", "Write", "Stream")),
]
DEFAULTS = {
    "batch_size": options.BATCH_ROWS,
    "bytes_per_task": options.TASK_BYTES,
    "nearest.k": DEFAULT_K,
    "on_change": FAIL,
}
JAVA_ERRORS = (
    REPOSITORY / "apps/lance_bridge_spark/jvm/src/org/lancebridge/spark/LanceException.java"
)
TYPES = [
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.decimal128(38, 18)),
    *(pa.string(), pa.large_string(), pa.string_view()),
    *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns")),
    *(pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Berlin")),
    *(pa.duration("s"), pa.duration("us")),
    *(pa.list_(pa.int32()), pa.large_list(pa.int32())),
    *(pa.list_(pa.float32(), 2), pa.list_(pa.float16(), 2)),
    pa.dictionary(pa.int8(), pa.string()),
    pa.struct([("a", pa.uint8())]),
    pa.map_(pa.string(), pa.int64()),
]
_OTHER_NAMES = {"float": "float32", "halffloat": "float16", "double": "float64"}
_ARROW_NAMES = {"date32[day]": "date32", "date64[ms]": "date64"}


# -- the source ------------------------------------------------------------------------------------


def option_rows() -> dict[str, str]:
    """Every option of the tables, with its documented default."""
    rows = [row for title in OPTION_TABLES for row in SPARK_SPEC.rows(title, "option")]
    assert [name for name, n in Counter(row[0] for row in rows).items() if n > 1] == []
    return {row[0].strip("`"): row[1] for row in rows}


def test_options_and_their_defaults_are_those_of_the_code() -> None:
    stated = option_rows()

    assert sorted(stated) == sorted(options.KNOWN)
    assert {key: stated[key] for key in DEFAULTS} == {k: f"`{v}`" for k, v in DEFAULTS.items()}


def arrow_name(kind: pa.DataType) -> str:
    """What the spec calls a type: as pyarrow writes it, but for elements of lists and maps."""
    text = re.sub(r"<(?:item|element): (\w+)>", r"<\1>", str(kind))
    text = re.sub(r"\b(halffloat|float|double)\b", lambda m: _OTHER_NAMES[m[1]], text)
    return _ARROW_NAMES.get(text, text)


def test_types_are_read_as_the_spec_says() -> None:
    stated = {
        name: re.findall(r"`([^`]+)`", row[1])[0]
        for row in SPARK_SPEC.rows("Reading Types", "in the table")
        for name in re.findall(r"`([^`]+)`", row[0])
    }
    read = schemas.spark_schema(pa.schema([(str(i), kind) for i, kind in enumerate(TYPES)]))

    assert stated == {
        arrow_name(kind): field.dataType.simpleString()
        for kind, field in zip(TYPES, read.fields, strict=True)
    }


def test_types_that_are_refused_are_those_of_the_code() -> None:
    stated = [row[0].strip("`") for row in SPARK_SPEC.rows("Writing Types", "refused")]

    assert sorted(stated) == sorted(schemas._UNSTORABLE)


# -- functions, jobs and errors --------------------------------------------------------------------


def public_classes() -> set[str]:
    names = lance_bridge_spark.__all__
    return {name for name in names if inspect.isclass(getattr(lance_bridge_spark, name))}


def test_every_public_class_is_documented() -> None:
    rows = SPARK_SPEC.rows("Classes of the Functions", "class")

    assert {row[0].strip("`") for row in rows} == public_classes()


def signature(name: str) -> str:
    """A public function with its parameters and their defaults, on one line."""
    found = inspect.signature(getattr(lance_bridge_spark, name))
    plain = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    text = str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return f"{name}{text}".replace("'", '"').replace("datetime.", "")


def test_every_public_function_has_a_section_with_its_signature() -> None:
    for name in {*lance_bridge_spark.__all__} - public_classes():
        assert (3, name) in SPARK_SPEC.headings
        assert f"`{signature(name)}`" in " ".join(SPARK_SPEC.body(name).split())


def test_every_error_has_its_condition_in_python_and_in_java() -> None:
    stated = {
        int(row[0].strip("`")): row[1].strip("`") for row in SPARK_SPEC.rows("Errors", "code")
    }
    kinds: list[Any] = [kind for _, kind in inspect.getmembers(lance_errors, inspect.isclass)]
    made = [kind("x") for kind in kinds if LanceNamespaceError in kind.__mro__[1:]]

    assert stated == {int(error.code): condition(error) for error in made}
    source = JAVA_ERRORS.read_text(encoding="utf-8")
    names = {name: int(code) for name, code in re.findall(r"int (\w+) = (\d+);", source)}
    entries = re.findall(r'Map\.entry\((\w+), new String\[\] \{"(\w+)"', source)
    in_java = {names[key] if key in names else int(key): name for key, name in entries}
    assert in_java == stated


def test_the_operations_that_an_engine_does_are_documented() -> None:
    stated = {row[0] for row in SPARK_SPEC.rows("Namespace Operations by Spark", "operation")}

    assert {operations()[name] for name in stated} == {*NEED_ENGINE, "alter_table_backfill_columns"}


# -- snippets --------------------------------------------------------------------------------------


def snippets(text: str, uri: str) -> list[list[str]]:
    """The language and the text of each snippet, for the database of this test."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert {language for language, _ in found} == {"python", "sql"}
    return [[kind, code.replace(URI, uri).replace("sales", DATABASE)] for kind, code in found]


DATABASE = "spark_docs"
TABLES = {
    "articles": pa.table({"id": [1, 2, 3], "title": ["a", "b", "c"]}),
    "films": pa.table({"id": [1, 2], "title": ["M", "Faust"], "year": [1931, 1926]}),
}


@pytest.fixture(scope="module")
def printed(
    metastores: Metastores, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[str, str]]:
    """Each snippet, and what it printed or raised."""
    uri = metastores.get("2.3").uri
    directory = tmp_path_factory.mktemp("snippets")
    with HiveNamespace(uri=uri, root=str(directory / "tables")) as namespace:
        namespace.create_namespace(CreateNamespaceRequest(id=[DATABASE]))
        for name, rows in TABLES.items():
            namespace.create_table(CreateTableRequest(id=[DATABASE, name]), ipc(rows))
    found = snippets(TEXT, uri)
    spark = Spark(
        conf={
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.hive.metastore.uris": uri,
            "spark.sql.catalog.prod.impl": "hive",
            "spark.sql.catalog.prod.uri": uri,
        }
    )
    printed = spark.run(
        "docs.snippet_processes:run_snippets",
        directory,
        seconds=500,
        documents={"spec": found},
        before=[],
    )
    return [(text, out) for (_, text), out in zip(found, printed["spec"], strict=True)]


@pytest.mark.spec("spark.md#searches-in-sql")
@pytest.mark.documents
def test_every_snippet_of_the_spec_runs(printed: list[tuple[str, str]]) -> None:
    require_said(printed)


def require_said(printed: list[tuple[str, str]]) -> None:
    """Check that each snippet printed what its comments say, and nothing else."""
    assert len(printed) > 3
    for text, out in printed:
        expected = re.findall(r"^print\(.*\)  # (.*)$", text, re.MULTILINE)
        assert out.splitlines() == expected, out


def test_a_snippet_that_fails_is_reported() -> None:
    snippets = [["python", "x = 1"], ["python", "print(x)"], ["python", "y"]]
    printed = run_snippets(None, {"one": snippets}, [])
    first, second, third = printed["one"]

    assert (first, second) == ("", "1\n")
    assert "NameError: name 'y' is not defined" in third
    with pytest.raises(AssertionError, match="NameError"):
        require_said([("", ""), ("", ""), ("", ""), ("y", third)])

"""``specs/operations.md`` says what operations do, and where the directory namespace differs."""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pytest
from core.memory_catalog import SERVERS, MemoryNamespace
from lance.namespace import DirectoryNamespace
from lance_namespace import errors
from pydantic import BaseModel

from lance_bridge import engine
from lance_bridge.operations.data import NEED_ENGINE
from lance_bridge.testing.calls import ipc
from lance_bridge_cli.managed import app as managed_app

from .operation_samples import (
    BRANCH,
    DATABASE,
    FIELDS,
    INDEX,
    ROWS,
    call,
    fill,
    new_namespace,
    request_type,
    stage,
)
from .specs import (
    OPERATIONS_SPEC,
    Operation,
    anchor_of,
    bad_errors,
    documented_codes,
    is_implemented,
    methods_of_managed_tables,
    operations,
    operations_inside,
)

pytestmark = [
    pytest.mark.checks,
    pytest.mark.spec("operations.md#differences-from-the-directory-namespace"),
]

COMMON_FIELDS = "Fields of Every Request"
METHODS = operations()
OPERATIONS = operations_inside()
BEYOND = methods_of_managed_tables()
FINDING = "Errors of Finding the Table"
WITH_ERRORS = [*OPERATIONS, *BEYOND, FINDING, "Errors of Every Operation"]
WHOLE = ("identity", "virtual_column")
"""Fields without effect, or refused as a whole: what is in them need not be documented."""
TABLE, DIR_TABLE = [*DATABASE, "t"], ["t"]
ANSWERS = None
MAPPINGS = ("batch_delete_table_versions", "describe_table_version")
"""Methods of the directory namespace that take no models."""


def section(name: str) -> Operation:
    return OPERATIONS_SPEC.operation(name)


def stated_fields(name: str) -> dict[str, str]:
    """The fields that a section names, and those that it refers to."""
    found = section(name)
    referred = stated_fields(found.same_fields_as) if found.same_fields_as else {}
    return {**referred, **found.fields}


def text_about(name: str) -> str:
    """What is said of a request, also by the section that is referred to."""
    other = section(name).same_fields_as
    return section(name).text + (text_about(other) if other else "")


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from models_in(argument)


def inner_fields(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[str]:
    """Yield the fields inside a request's fields, but not those of other requests in it."""
    for name, field in model.model_fields.items():
        if name in WHOLE:
            continue
        for inner in models_in(field.annotation):
            if inner in seen or inner.__name__.endswith("Request"):
                continue
            seen.add(inner)
            yield from inner.model_fields
            yield from inner_fields(inner, seen)


# -- every operation -------------------------------------------------------------------------------


def test_every_operation_inside_a_table_has_a_section_and_a_sample() -> None:
    assert {METHODS[name] for name in OPERATIONS} == set(FIELDS)


def test_every_operation_that_no_catalog_can_do_is_listed_with_the_reason() -> None:
    listed = OPERATIONS_SPEC.body("Unsupported Operations")
    names = re.findall(r"\*\*(\w+)\*\*", listed)

    assert sorted(METHODS[name] for name in names) == sorted(NEED_ENGINE)
    assert "need a compute engine" in " ".join(listed.split())
    assert "compute engine" in engine.HOW


def test_the_commands_are_documented_in_their_order() -> None:
    text = " ".join(OPERATIONS_SPEC.body("Implementation-Managed Tables").split())
    stated = re.search(r"in their order: (.*?); it comes with", text)
    commands = [each.callback for each in managed_app.registered_commands]

    assert stated
    assert re.findall(r"`(\w+)`", stated[1]) == [each.__name__ for each in commands if each]
    assert len(commands) == len(BEYOND)


# -- fields ----------------------------------------------------------------------------------------


def test_the_documented_fields_are_those_of_the_request() -> None:
    common = set(re.findall(r"^- \*\*(\w+)\*\*: ", OPERATIONS_SPEC.body(COMMON_FIELDS), re.M))
    fields = {name: set(request_type(METHODS[name]).model_fields) - common for name in OPERATIONS}

    assert common == {"id", "identity", "context"}
    assert {name: set(stated_fields(name)) for name in OPERATIONS} == fields


def test_every_nested_field_is_documented() -> None:
    missing = {}
    for name in OPERATIONS:
        inner = set(inner_fields(request_type(METHODS[name]), set()))
        stated = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", text_about(name)))))
        missing[name] = inner - stated

    assert {name: fields for name, fields in missing.items() if fields} == {}


def refused_fields() -> list[tuple[str, str, int]]:
    return [
        (METHODS[name], field, code)
        for name in OPERATIONS
        for field, code in section(name).refused.items()
    ]


def value_of(model: type[BaseModel], field: str) -> Any:
    """Return a value that a field can have."""
    text = str(model.model_fields[field].annotation)
    if "Dict" in text:
        return {"a": "b"}
    return 1 if "int" in text or "float" in text else "x"


def test_a_field_that_is_refused_is_refused_by_name(tmp_path: Path) -> None:
    ns, _ = new_namespace(tmp_path / "lake")
    fill(ns)
    place = tmp_path / "lake" / "eu" / "shop" / "sales.db" / "orders.lance"
    for method, field, code in refused_fields():
        fields = stage(place) if method == "create_table_version" else {}
        value = value_of(request_type(method), field)
        with pytest.raises(errors.LanceNamespaceError, match=rf"\b{field}\b") as caught:
            call(ns, method, **fields, **{field: value})
        assert caught.value.code == code, f"{method}: {field}"


# -- errors ----------------------------------------------------------------------------------------


def test_a_section_has_an_answer_steps_and_the_errors_of_its_method() -> None:
    sections = [section(name) for name in (*OPERATIONS, *BEYOND)]
    methods = {**METHODS, **{name: name for name in BEYOND}}
    documented = {
        each.name: documented_codes(MemoryNamespace, methods[each.name]) for each in sections
    }
    assert {each.name: each.codes for each in sections} == documented
    assert [each.name for each in sections if not each.description] == []
    assert [each.name for each in sections if not each.has_numbered_steps] == []
    assert [name for name in OPERATIONS if not section(name).answer] == []
    assert [name for name in OPERATIONS if not is_implemented(MemoryNamespace, METHODS[name])] == []
    assert [bad for name in WITH_ERRORS for bad in bad_errors(name, section(name).errors)] == []


def test_a_section_refers_to_the_errors_of_finding_the_table() -> None:
    described = section(FINDING).codes
    for name in (*OPERATIONS, *BEYOND):
        fragment, named = section(name).common_errors
        assert fragment == anchor_of(FINDING), name
        assert {1, 4, 13, 19} <= set(named) <= described, name


# -- differences from pylance's directory namespace ------------------------------------------------


class Both:
    """The same rows in a namespace of this library and in pylance's of a directory."""

    def __init__(self, root: Path) -> None:
        self.own, self.server = new_namespace(root / "own")
        made: Callable[..., DirectoryNamespace] = DirectoryNamespace
        self.directory = made(root=str(root / "directory"))
        fill(self.own, TABLE)
        self.directory.create_table(api.CreateTableRequest(id=DIR_TABLE), ipc(ROWS))
        call(self.directory, "create_table_index", DIR_TABLE, column="id")
        call(self.directory, "create_table_tag", DIR_TABLE, tag="first")
        call(self.directory, "create_table_branch", DIR_TABLE, name=BRANCH)

    def code(self, own: bool, method: str, **fields: Any) -> int | str | None:
        """Return the code of the error that a request meets, its type, or None for an answer."""
        try:
            if own:
                call(self.own, method, TABLE, **fields)
            elif method in MAPPINGS:
                getattr(self.directory, method)({"id": DIR_TABLE, **FIELDS[method], **fields})
            else:
                call(self.directory, method, DIR_TABLE, **fields)
        except errors.LanceNamespaceError as error:
            return int(error.code)
        except (ValueError, RuntimeError) as error:
            return type(error).__name__
        return ANSWERS

    def versions(self, own: bool) -> tuple[int, int]:
        """Return the latest versions of main and of the branch."""
        found = (self.own, TABLE) if own else (self.directory, DIR_TABLE)
        request = api.DescribeTableRequest(id=found[1])
        opened = lance.dataset(found[0].describe_table(request).location or "")
        return int(opened.version), int(opened.checkout_version((BRANCH, None)).version)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    both = Both(tmp_path)
    yield both
    for name in [name for name, each in SERVERS.items() if each is both.server]:
        del SERVERS[name]


DIFFERENT: list[tuple[str, dict[str, Any], int | None, int | str | None]] = [
    ("count_table_rows", {"predicate": "nope = 1"}, 12, 18),
    ("count_table_rows", {"predicate": ""}, 13, 18),
    ("count_table_rows", {"branch": "nope"}, 22, 4),
    ("list_table_versions", {"branch": "nope"}, 22, 4),
    ("delete_from_table", {"predicate": "nope = 1"}, 12, 13),
    ("delete_from_table", {"predicate": "id = 1; drop table t"}, 13, ANSWERS),
    ("merge_insert_into_table", {"on": ["nope"]}, 12, 13),
    ("merge_insert_into_table", {"timeout": "soon"}, 13, ANSWERS),
    ("update_table", {"updates": [["nope", "1"]]}, 12, 13),
    ("update_table", {"updates": [["price", "id / 0"]]}, 13, 18),
    ("update_table", {"updates": [["price", "id"], ["id", "price"]]}, 0, ANSWERS),
    ("alter_table_add_columns", {"new_columns": []}, 13, ANSWERS),
    ("alter_table_add_columns", {"new_columns": [{"name": "_rowid", "expression": "1"}]}, 13, None),
    ("alter_table_add_columns", {"new_columns": [{"name": "id", "expression": "1"}]}, 13, 14),
    ("alter_table_add_columns", {"new_columns": [{"name": "x", "expression": "nope"}]}, 12, 18),
    (
        "alter_table_add_columns",
        {"new_columns": [{"name": "x", "computed": "id"}]},
        None,
        "ValueError",
    ),
    ("alter_table_alter_columns", {"alterations": [{"path": "id"}]}, 13, ANSWERS),
    ("alter_table_alter_columns", {"alterations": [{"path": "nope", "rename": "x"}]}, 12, 18),
    (
        "alter_table_alter_columns",
        {"alterations": [{"path": "price", "data_type": {"type": "float32"}}]},
        ANSWERS,
        "ValueError",
    ),
    ("alter_table_drop_columns", {"columns": []}, 13, ANSWERS),
    ("alter_table_drop_columns", {"columns": ["nope"]}, 12, 18),
    ("update_field_metadata", {}, ANSWERS, 0),
    ("batch_create_table_versions", {"entries": []}, 13, 0),
    ("create_table_index", {"num_bits": 3}, 13, ANSWERS),
    ("create_table_index", {"index_type": "IVF_PQ"}, 13, 18),
    ("list_table_indices", {"limit": 0}, 13, ANSWERS),
    ("list_table_versions", {"page_token": "x"}, 13, ANSWERS),
    ("describe_table_version", {"version": 0}, 13, 11),
    ("restore_table", {"version": 99}, 11, "RuntimeError"),
    ("batch_delete_table_versions", {"ranges": [{"start_version": 5, "end_version": 2}]}, 13, None),
    ("create_table_branch", {"from_version": 99}, 11, 13),
    ("create_table_branch", {"from_branch": "nope"}, 22, 18),
    ("create_table_branch", {"name": "ü"}, 13, ANSWERS),
    ("create_table_tag", {"branch": "nope"}, 22, ANSWERS),
    (
        "alter_transaction",
        {"actions": [{"set_property_action": {"key": "a", "value": "b"}}]},
        0,
        ANSWERS,
    ),
]


@pytest.mark.parametrize(("method", "fields", "own", "directory"), DIFFERENT, ids=str)
def test_a_request_has_another_code_than_in_the_directory_namespace(
    both: Both, method: str, fields: dict[str, Any], own: int | None, directory: int | str | None
) -> None:
    assert both.code(True, method, **fields) == own
    assert both.code(False, method, **fields) == directory


BRANCHED = [
    "alter_table_add_columns",
    "alter_table_alter_columns",
    "alter_table_drop_columns",
    "create_table_index",
    "delete_from_table",
    "insert_into_table",
    "merge_insert_into_table",
    "update_table",
    "update_table_schema_metadata",
]


@pytest.mark.parametrize("method", BRANCHED)
def test_a_branch_is_changed_where_the_directory_namespace_changes_main(
    both: Both, method: str
) -> None:
    for own in (True, False):
        main, branch = both.versions(own)
        assert both.code(own, method, branch=BRANCH) is ANSWERS
        expected = (main, branch + 1) if own else (main + 1, branch)
        assert both.versions(own) == expected


def test_all_versions_cannot_be_deleted_where_the_directory_namespace_loses_the_table(
    both: Both,
) -> None:
    ranges = [{"start_version": 0, "end_version": -1}]
    assert both.code(True, "batch_delete_table_versions", ranges=ranges) == 13
    assert both.code(False, "batch_delete_table_versions", ranges=ranges) is ANSWERS
    assert both.code(True, "count_table_rows") is ANSWERS
    assert both.code(False, "count_table_rows") == 4


def test_metadata_is_replaced_where_the_directory_namespace_merges_it(both: Both) -> None:
    for metadata in ({"a": "b"}, {"c": "d"}):
        own = call(both.own, "update_table_schema_metadata", TABLE, metadata=metadata).metadata
        directory = call(
            both.directory, "update_table_schema_metadata", DIR_TABLE, metadata=metadata
        )
    assert own == {"c": "d"}
    assert directory.metadata == {"a": "b", "c": "d"}


def test_overwriting_keeps_the_schema_where_the_directory_namespace_takes_a_new_one(
    both: Both,
) -> None:
    other = ipc(ROWS.select(["id"]).rename_columns(["other"]))
    with pytest.raises(errors.TableSchemaValidationError):
        call(both.own, "insert_into_table", TABLE, rows=other, mode="Overwrite")
    call(both.directory, "insert_into_table", DIR_TABLE, rows=other, mode="Overwrite")
    with pytest.raises(errors.InternalError):
        call(both.directory, "count_table_rows", DIR_TABLE)  # by a column that is gone


def test_an_answer_names_the_transaction_where_the_directory_namespace_does_not(both: Both) -> None:
    for method in (
        *("insert_into_table", "merge_insert_into_table", "update_table"),
        *("delete_from_table", "alter_table_drop_columns"),
    ):
        assert call(both.own, method, TABLE).transaction_id, method
        assert call(both.directory, method, DIR_TABLE).transaction_id is None, method


def test_a_page_has_a_token_where_the_directory_namespace_gives_none(both: Both) -> None:
    call(both.directory, "insert_into_table", DIR_TABLE)
    assert call(both.own, "list_table_versions", TABLE, limit=1).page_token
    assert call(both.directory, "list_table_versions", DIR_TABLE, limit=1).page_token is None


def test_a_type_is_named_as_requests_name_it_where_the_directory_namespace_has_lances(
    both: Both,
) -> None:
    own = call(both.own, "describe_table_index_stats", TABLE)
    directory = call(both.directory, "describe_table_index_stats", DIR_TABLE, index_name=INDEX)
    assert (own.index_type, directory.index_type) == ("BTREE", "BTree")


def test_a_status_is_spelled_as_the_specification_has_it(both: Both) -> None:
    own = call(both.own, "describe_transaction", TABLE)
    directory = call(both.directory, "describe_transaction", DIR_TABLE)
    assert (own.status, directory.status) == ("Succeeded", "SUCCEEDED")


def test_a_table_without_data_exists_where_the_directory_namespace_finds_none(both: Both) -> None:
    for ns, table in ((both.own, [*DATABASE, "new"]), (both.directory, ["new"])):
        ns.declare_table(api.DeclareTableRequest(id=table))
    with pytest.raises(errors.InvalidTableStateError):
        call(both.own, "count_table_rows", [*DATABASE, "new"])
    with pytest.raises(errors.TableNotFoundError):
        call(both.directory, "count_table_rows", ["new"])
    assert call(both.own, "list_table_tags", [*DATABASE, "new"]).tags == {}
    with pytest.raises(errors.TableNotFoundError):
        call(both.directory, "list_table_tags", ["new"])


def test_a_plan_of_another_table_is_refused_where_the_directory_namespace_shows_one(
    both: Both,
) -> None:
    query = {"id": ["other"], "k": 1, "vector": {}}
    assert both.code(True, "explain_table_query_plan", query=query) == 13
    assert both.code(False, "explain_table_query_plan", query=query) is ANSWERS

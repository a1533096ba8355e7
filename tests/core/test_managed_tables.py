"""Tables become implementation-managed, are renamed and removed, and are left to storage again."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import lance
import lance_namespace as api
import pytest
from lance_namespace import errors
from typer.testing import CliRunner, Result

import lance_bridge_cli as cli
from lance_bridge.catalog import GUARD, LATEST, MANAGED_BY, Capabilities
from lance_bridge.entry import TableEntry
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.exit_codes import FOUND
from lance_bridge.managed import compare_and_set
from lance_bridge.managed_state import BRIEF_SECONDS, HOLD_SECONDS, with_state
from lance_bridge.storage.store import TableFiles
from lance_bridge.testing.calls import Calls
from lance_bridge_cli.app import app

from .managed_tables import (
    KEY,
    MANAGED,
    append,
    append_past_the_catalog,
    create_managed,
    directory,
    insert,
    meanwhile,
    rows,
    state,
    table,
    versions,
)
from .memory_catalog import (
    CAPABILITIES,
    TABLE,
    MemoryNamespace,
    MemoryServer,
    Moment,
    at_change,
    count_rows,
    create,
    raiser,
    stream,
)

pytestmark = [
    pytest.mark.quick,
    pytest.mark.usefixtures("able"),
    pytest.mark.spec("cli.md#managed"),
]

NEW = [*TABLE[:-1], "Renamed"]
CLASS = f"{MemoryNamespace.__module__}.{MemoryNamespace.__qualname__}"


def mark(client: MemoryNamespace) -> str | None:
    return client.server.tables[KEY].properties.get(MANAGED_BY)


# -- conversion ------------------------------------------------------------------------------------


@pytest.mark.spec("managed.md#becoming-managed")
def test_a_table_goes_to_the_catalog_and_back_with_all_its_versions(
    with_table: MemoryNamespace,
) -> None:
    append(with_table, 7)
    with_table.manage_table(TABLE)
    assert (mark(with_table), state(with_table).version) == ("impl", 2)
    append(with_table, 8)
    with_table.release_table(TABLE)
    assert mark(with_table) == "storage"
    with pytest.raises(errors.InvalidInputError, match="managed by its storage"):
        with_table.release_table(TABLE)
    assert not {LATEST, GUARD} & set(with_table.server.tables[KEY].properties)
    append_past_the_catalog(with_table, 9)
    assert versions(with_table) == [1, 2, 3, 4]
    assert rows(with_table) == [0, 1, 2, 7, 8, 9]


def test_what_was_committed_to_the_storage_during_the_conversion_is_kept(
    with_table: MemoryNamespace,
) -> None:
    meanwhile(with_table, "before", lambda: append_past_the_catalog(with_table, 5))
    with_table.manage_table(TABLE)
    assert rows(with_table) == [0, 1, 2, 5]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("way", ["manage_table", "release_table"])
def test_a_conversion_whose_reply_was_lost_is_made(
    namespace: MemoryNamespace, way: str, moment: Moment
) -> None:
    create(namespace, TABLE, properties=MANAGED if way == "release_table" else {})
    meanwhile(namespace, moment, raiser(OutcomeUnknownError("lost")))
    getattr(namespace, way)(TABLE)
    assert mark(namespace) == ("impl" if way == "manage_table" else "storage")
    append(namespace, 7)
    assert rows(namespace) == [0, 1, 2, 7]


@pytest.mark.spec(
    "common.md#createtable",
    "common.md#registertable",
    "managed.md#becoming-managed",
    "operations.md#manage_table",
)
def test_a_table_with_branches_stays_with_its_storage(with_table: MemoryNamespace) -> None:
    with_table.create_table_branch(api.CreateTableBranchRequest(id=TABLE, name="b"))
    with pytest.raises(errors.InvalidTableStateError, match="branches"):
        with_table.manage_table(TABLE)
    assert mark(with_table) == "storage"


@pytest.mark.spec("operations.md#createtablebranch")
def test_a_managed_table_gets_no_branch(managed: MemoryNamespace) -> None:
    with pytest.raises(errors.UnsupportedOperationError, match="branches"):
        managed.create_table_branch(api.CreateTableBranchRequest(id=TABLE, name="b"))
    with pytest.raises(errors.TableBranchNotFoundError):
        managed.count_table_rows(api.CountTableRowsRequest(id=TABLE, branch="b"))
    listed = managed.list_table_branches(api.ListTableBranchesRequest(id=TABLE))
    assert listed.branches == {}


@pytest.mark.spec(
    "common.md#createtable",
    "common.md#declaretable",
    "common.md#registertable",
    "managed.md#becoming-managed",
    "operations.md#manage_table",
)
def test_a_table_with_manifests_of_the_first_scheme_stays_with_its_storage(
    namespace: MemoryNamespace, tmp_path: Any
) -> None:
    place = str(tmp_path / "old.lance")
    lance.write_dataset(table(0, 1, 2), place, enable_v2_manifest_paths=False)
    asked: dict[str, Any] = {"id": TABLE, "location": place, "properties": MANAGED}
    with pytest.raises(errors.InvalidTableStateError, match="migrate_manifest_paths_v2"):
        namespace.register_table(api.RegisterTableRequest(**asked))
    assert KEY not in namespace.server.tables
    with pytest.raises(errors.InvalidTableStateError, match="migrate_manifest_paths_v2"):
        namespace.declare_table(api.DeclareTableRequest(**asked))
    assert mark(namespace) == "storage"


@pytest.mark.spec(
    "managed.md#properties-of-the-entry",
    "operations.md#errors-of-every-operation",
    "operations.md#manage_table",
)
def test_a_table_that_another_implementation_manages_is_left_to_it(
    with_table: MemoryNamespace,
) -> None:
    found = with_table.server.tables[KEY]
    with_table.server.tables[KEY] = found.with_properties({**found.properties, MANAGED_BY: "impl"})
    refused: list[Callable[[], object]] = [
        lambda: with_table.manage_table(TABLE),
        lambda: with_table.list_table_versions(api.ListTableVersionsRequest(id=TABLE)),
        lambda: insert(with_table),
        lambda: with_table.create_table_branch(api.CreateTableBranchRequest(id=TABLE, name="b")),
    ]
    for call in refused:
        with pytest.raises(errors.UnsupportedOperationError, match="another implementation"):
            call()
    with pytest.raises(errors.InvalidInputError, match="managed by another implementation"):
        with_table.release_table(TABLE)
    assert count_rows(with_table, TABLE) == 3
    described = with_table.describe_table(api.DescribeTableRequest(id=TABLE))
    assert described.managed_versioning is None


# -- new tables ------------------------------------------------------------------------------------


def test_a_registration_that_is_overwritten_is_managed_as_it_says(
    managed: MemoryNamespace, tmp_path: Any
) -> None:
    place = str(tmp_path / "other.lance")
    lance.write_dataset(table(0, 1, 2), place)
    calls = Calls(managed)
    for properties, expected in (({}, None), (MANAGED, True)):
        calls.register_table(TABLE, place, mode="overwrite", properties=properties)
        assert calls.describe_table(TABLE).managed_versioning is expected


def test_a_registration_stays_where_it_is_if_the_new_place_cannot_be_managed(
    with_table: MemoryNamespace, tmp_path: Any
) -> None:
    before = with_table.server.tables[KEY]
    place = str(tmp_path / "old.lance")
    lance.write_dataset(table(1), place, enable_v2_manifest_paths=False)
    with pytest.raises(errors.InvalidTableStateError):
        Calls(with_table).register_table(TABLE, place, mode="overwrite", properties=MANAGED)
    assert with_table.server.tables[KEY] == before


@pytest.mark.spec(
    "common.md#createnamespace",
    "common.md#createtable",
    "common.md#declaretable",
    "common.md#registertable",
    "operations.md#manage_table",
)
@pytest.mark.parametrize(
    "capabilities",
    [
        replace(CAPABILITIES, no_alter="it forgets"),
        replace(CAPABILITIES, no_alter="", no_managed_tables="it forgets"),
    ],
)
def test_a_catalog_that_cannot_says_why_and_makes_nothing(
    namespace: MemoryNamespace, tmp_path: Any, capabilities: Capabilities
) -> None:
    namespace.server.capabilities = capabilities
    calls, place = Calls(namespace), str(tmp_path / "x.lance")
    attempts: list[Callable[[], object]] = [
        lambda: create_managed(namespace),
        lambda: calls.declare_table(TABLE, properties=MANAGED),
        lambda: calls.register_table(TABLE, place, properties=MANAGED),
        lambda: calls.create_namespace(["eu", "shop", "new"], properties=MANAGED),
    ]
    for attempt in attempts:
        with pytest.raises(errors.UnsupportedOperationError, match="it forgets"):
            attempt()
    assert not namespace.server.effects


@pytest.mark.spec("common.md#createtable")
def test_a_table_that_cannot_be_guarded_is_taken_back(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = raiser(errors.UnsupportedOperationError("neither lock nor condition"))
    monkeypatch.setattr(type(namespace.connection.catalog), "commit_guard", refuse)
    declare = partial(Calls(namespace).declare_table, TABLE, properties=MANAGED)
    for call in (partial(create_managed, namespace), declare):
        with pytest.raises(errors.UnsupportedOperationError, match="neither"):
            call()
        assert not namespace.server.tables


def test_of_two_creators_one_creates(namespace: MemoryNamespace, server: MemoryServer) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE, properties=MANAGED))
    meanwhile(server, "before", lambda: create(namespace, TABLE, 5))
    with pytest.raises(errors.TableAlreadyExistsError):
        create(namespace, TABLE, 3)
    assert len(rows(namespace)) == 5
    create(namespace, TABLE, 3, mode="ExistOk")
    assert len(rows(namespace)) == 5


# -- renames ---------------------------------------------------------------------------------------


@pytest.mark.spec("managed.md#operations-on-managed-tables")
@pytest.mark.parametrize("by_copy", [False, True])
def test_a_table_that_is_being_renamed_takes_no_commit(
    managed: MemoryNamespace, by_copy: bool
) -> None:
    managed.server.capabilities = replace(managed.server.capabilities, renames_by_copy=by_copy)
    refused: list[str] = []

    def fault(change: str, _: str) -> None:
        if change in ("rename_table", "copy_table", "drop_table"):
            with pytest.raises(errors.LanceNamespaceError) as caught:
                insert(managed)
            refused.append(type(caught.value).__name__)

    managed.server.fault = fault
    managed.rename_table(api.RenameTableRequest(id=TABLE, new_table_name=NEW[-1]))
    assert refused[0] == "ConcurrentModificationError"
    assert count_rows(managed, NEW) == 3


@pytest.mark.parametrize("by_copy", [False, True])
def test_a_rename_that_fails_lets_the_table_go_again(
    managed: MemoryNamespace, by_copy: bool
) -> None:
    managed.server.capabilities = replace(managed.server.capabilities, renames_by_copy=by_copy)
    create(managed, NEW)
    with pytest.raises(errors.TableAlreadyExistsError):
        managed.rename_table(api.RenameTableRequest(id=TABLE, new_table_name=NEW[-1]))
    assert state(managed).held is None
    assert append(managed, 7).version == 2


@pytest.mark.spec("managed.md#operations-on-managed-tables")
def test_a_table_that_a_rename_left_under_two_names_takes_no_commit_until_it_has_one(
    managed: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.capabilities = replace(server.capabilities, renames_by_copy=True)

    def interrupt() -> None:
        server.fault = raiser(KeyboardInterrupt())
        raise KeyboardInterrupt

    at_change(server, "copy_table", "after", interrupt)
    with pytest.raises(KeyboardInterrupt):
        managed.rename_table(api.RenameTableRequest(id=TABLE, new_table_name=NEW[-1]))
    server.fault = None
    assert set(server.tables) == {KEY, tuple(NEW)}
    monkeypatch.setattr("lance_bridge.managed_state.HOLD_SECONDS", 0)
    for name in (TABLE, NEW):
        with pytest.raises(errors.InvalidTableStateError, match="deregister one of the two"):
            managed.insert_into_table(api.InsertIntoTableRequest(id=name), stream(1))
        assert count_rows(managed, name) == 3
    managed.deregister_table(api.DeregisterTableRequest(id=TABLE))
    managed.insert_into_table(api.InsertIntoTableRequest(id=NEW), stream(1))
    assert count_rows(managed, NEW) == 4


@pytest.mark.spec("managed.md#operations-on-managed-tables")
@pytest.mark.parametrize(("brief", "seconds"), [(False, HOLD_SECONDS), (True, BRIEF_SECONDS)])
def test_a_hold_whose_holder_died_ends_by_itself(
    managed: MemoryNamespace, server: MemoryServer, brief: bool, seconds: float
) -> None:
    with compare_and_set.held(TableEntry(managed.connection, server.tables[KEY]), brief=brief):
        with pytest.raises(errors.ConcurrentModificationError, match="try again"):
            insert(managed)
        held = state(server)
        old = replace(held, held=(held.held or 0) - int(seconds * 1000) - 1)
        server.tables[KEY] = with_state(server.tables[KEY], old)
        assert append(managed, 7).version == 2
    assert state(server).version == 2


# -- removal ---------------------------------------------------------------------------------------

REMOVALS: dict[str, Callable[[Calls, str], object]] = {
    "deregister": lambda calls, _: calls.deregister_table(TABLE),
    "move": lambda calls, place: calls.register_table(TABLE, place, mode="Overwrite"),
}


def refuse_writes(patch: pytest.MonkeyPatch, error: Exception) -> None:
    """Have the storage refuse every write of a new file."""
    patch.setattr(TableFiles, "put_new", raiser(error))


@pytest.mark.spec("common.md#deregistertable", "managed.md#operations-on-managed-tables")
@pytest.mark.parametrize(
    "error",
    [errors.ServiceUnavailableError, errors.PermissionDeniedError, errors.UnauthenticatedError],
)
@pytest.mark.parametrize("removal", REMOVALS)
def test_an_entry_is_kept_whose_latest_version_cannot_get_its_final_name(
    unfinished: MemoryNamespace,
    monkeypatch: pytest.MonkeyPatch,
    removal: str,
    error: type[Exception],
) -> None:
    calls, place = Calls(unfinished), str(directory(unfinished))
    before = state(unfinished)
    with monkeypatch.context() as patch:
        refuse_writes(patch, error("away"))
        with pytest.raises(error, match=r"is kept.*away"):
            REMOVALS[removal](calls, place)
    assert state(unfinished) == before
    REMOVALS[removal](calls, place)
    if removal == "deregister":
        calls.register_table(TABLE, place, properties=MANAGED)
    assert versions(unfinished) == [1, 2]


@pytest.mark.spec("common.md#deregistertable", "managed.md#operations-on-managed-tables")
def test_an_entry_is_kept_while_other_clients_keep_committing(
    managed: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = managed.server.tables[KEY]
    lost = errors.ConcurrentModificationError("another commit came first")
    monkeypatch.setattr(compare_and_set, "swap", raiser(lost))
    with pytest.raises(errors.ConcurrentModificationError, match="modified concurrently"):
        Calls(managed).deregister_table(TABLE)
    assert managed.server.tables[KEY] == before


@pytest.mark.spec("common.md#deregistertable", "managed.md#operations-on-managed-tables")
def test_a_table_whose_files_are_gone_is_deregistered(unfinished: MemoryNamespace) -> None:
    shutil.rmtree(directory(unfinished))
    Calls(unfinished).deregister_table(TABLE)
    assert KEY not in unfinished.server.tables


def test_a_table_that_cannot_be_opened_is_deregistered(
    unfinished: MemoryNamespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_writes(monkeypatch, errors.InvalidInputError("bad options"))
    Calls(unfinished).deregister_table(TABLE)
    assert KEY not in unfinished.server.tables
    assert "may stay staged: bad options" in caplog.text


@pytest.mark.spec("common.md#deregistertable", "managed.md#operations-on-managed-tables")
def test_a_table_is_dropped_whose_latest_version_cannot_get_its_final_name(
    unfinished: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = directory(unfinished)
    refuse_writes(monkeypatch, errors.ServiceUnavailableError("away"))
    Calls(unfinished).drop_table(TABLE)
    assert KEY not in unfinished.server.tables
    assert not place.exists()


# -- the command line ------------------------------------------------------------------------------


def run(ns: MemoryNamespace, *arguments: str, answer: str | None = None) -> Result:
    uri = f"uri={ns._properties['uri']}"
    command = ["managed", arguments[0], CLASS, ".".join(TABLE), "-p", uri]
    return CliRunner().invoke(app, [*command, *arguments[1:]], input=answer)


def test_a_table_is_converted_both_ways(namespace: MemoryNamespace) -> None:
    create(namespace, TABLE)
    begun = run(namespace, "begin")
    assert (begun.exit_code, begun.stdout) == (
        0, "eu.shop.sales.Orders: the catalog manages its versions\n"
    )  # fmt: skip
    assert state(namespace).version == 1
    ended = run(namespace, "end", "--output", "json")
    assert json.loads(ended.stdout) == {"table": "eu.shop.sales.Orders", "managed": False}
    assert rows(namespace) == [0, 1, 2]


def test_out_of_band_versions_are_listed_and_adopted(managed: MemoryNamespace) -> None:
    clean = run(managed, "check")
    assert clean.exit_code == 0
    assert "every version was committed" in clean.stdout
    append_past_the_catalog(managed, 8)
    found = run(managed, "check", "-o", "json")
    assert found.exit_code == FOUND
    report = json.loads(found.stdout)
    assert (report["versions"], report["writers"]) == ([2], [f"lance {lance.__version__}"])
    adopted = run(managed, "adopt")
    assert (adopted.exit_code, adopted.stdout) == (
        0, "eu.shop.sales.Orders: the latest version is 2\n"
    )  # fmt: skip
    assert rows(managed) == [0, 1, 2, 8]


def test_out_of_band_versions_are_discarded_after_confirmation(managed: MemoryNamespace) -> None:
    append_past_the_catalog(managed, 8)
    refused = run(managed, "discard", answer="n\n")
    assert refused.exit_code == 2  # stdin is not a terminal
    assert run(managed, "check").exit_code == FOUND
    done = run(managed, "discard", "--versions", "2", "--yes", "-o", "json")
    assert json.loads(done.stdout)["discarded"] == 1
    assert run(managed, "check").exit_code == 0


def test_rows_that_nothing_else_has_are_discarded_by_a_second_command(
    managed: MemoryNamespace,
) -> None:
    append_past_the_catalog(managed, 8)
    refused = run(managed, "discard", "--yes")
    assert (refused.exit_code, refused.stdout) == (1, "")
    name, uri = "eu.shop.sales.Orders", managed._properties["uri"]
    assert "version 2 (1 data file, 1 row). To keep them: " in refused.stderr
    assert f"lance-bridge managed adopt {CLASS} {name} -p {shlex.quote(f'uri={uri}')}" in (
        refused.stderr
    )
    assert f"lance-bridge managed discard {CLASS} {name} --versions 2 -p " in refused.stderr
    insert(managed)
    again = run(managed, "discard", "--yes")
    assert f"lance-bridge managed adopt {CLASS} {name} --append -p " in again.stderr
    appended = run(managed, "adopt", "--append")
    assert (appended.exit_code, appended.stdout) == (0, f"{name}: the latest version is 3\n")
    assert rows(managed) == [0, 0, 1, 2, 8]


@pytest.mark.parametrize("text", ["", "x", "2,", "2 3", "-1", "2..3"])
def test_malformed_versions_are_refused(managed: MemoryNamespace, text: str) -> None:
    append_past_the_catalog(managed, 8)
    refused = run(managed, "discard", "--versions", text, "--yes")
    assert (refused.exit_code, "--versions must be numbers" in refused.stderr) == (2, True)
    assert run(managed, "discard", "--versions", "2, 2", "--yes").exit_code == 0


def test_a_printed_command_shows_no_secret(managed: MemoryNamespace) -> None:
    append_past_the_catalog(managed, 8)
    refused = run(managed, "discard", "--yes", "-p", "token=secret-7")
    assert "token=<token>" in refused.stderr
    assert "secret-7" not in refused.stderr


def test_quarantined_versions_are_listed(managed: MemoryNamespace) -> None:
    append_past_the_catalog(managed, 8)
    insert(managed)
    found = run(managed, "check")
    assert found.exit_code == FOUND
    [name] = json.loads(run(managed, "check", "-o", "json").stdout)["quarantined"]
    assert found.stdout == (
        f"eu.shop.sales.Orders: version 2 is quarantined ({name})\n"
        f"eu.shop.sales.Orders: written by lance {lance.__version__}\n"
        "eu.shop.sales.Orders: rows that nothing else has: version 2 (1 data file, 1 row)\n"
    )
    assert json.loads(run(managed, "check", "-o", "json").stdout)["quarantined_versions"] == [2]


@pytest.mark.spec("cli.md#exit-codes")
def test_a_failure_is_one_message_without_a_traceback(namespace: MemoryNamespace) -> None:
    failed = run(namespace, "adopt")
    assert failed.exit_code == 1
    assert failed.stdout == ""
    assert failed.stderr.startswith("lance-bridge: ")
    assert "eu.shop.sales.Orders" in failed.stderr


@pytest.mark.parametrize("properties", [["uri"], ["=x"]])
def test_a_malformed_property_is_refused(properties: list[str]) -> None:
    options = [option for each in properties for option in ("-p", each)]
    failed = CliRunner().invoke(app, ["managed", "check", CLASS, "a.b", *options])
    assert failed.exit_code == 2
    assert "key=value" in failed.stderr


def test_without_the_extra_the_command_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)  # to Python, a package that is not installed
    monkeypatch.setattr(sys, "argv", ["lance-bridge"])
    with pytest.raises(SystemExit, match=r"pip install 'lance-bridge\[cli\]'"):
        cli.main()

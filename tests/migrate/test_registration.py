"""``register`` and ``entries``: tables get entries in a catalog, and stay as they are."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pytest
from lance_namespace import connect as connect_lance
from lance_namespace import errors
from migrate.sessions import Died, die_before
from servers.glue_server import GlueServer
from servers.hive_entries import raw_client

from lance_bridge.testing.calls import ipc
from lance_bridge_migrate import Directory, Endpoints, State, address_of
from lance_bridge_migrate.migrations import register
from lance_bridge_migrate.plan import warning
from lance_bridge_migrate.targets import Candidate, EntryFacts, plan_items

from .places import (
    Place,
    Run,
    between,
    counts_of,
    error_of,
    files,
    in_place,
    make_managing,
    plan_registration,
    planned,
    read_by_name,
    register_rows,
    rows,
    set_parameter,
    write,
)

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("migration.md#entries", "migration.md#plan", "migration.md#register"),
]


@pytest.fixture(params=["hive", "glue", "unity"])
def target(request: pytest.FixtureRequest) -> Place:
    place: Place = request.getfixturevalue(request.param)
    return place


@pytest.mark.spec("migration.md#parts", "migration.md#undoing", "migration.md#verifying")
def test_a_directory_of_tables_is_registered_and_its_files_stay_as_they_are(target: Place) -> None:
    write(target.lake, "orders", "parts")
    before = files(target.lake)
    with plan_registration(target) as run:
        plan = run.migration.plan()
        assert [item.target for item in plan.to_do] == [
            target.namespace(), target.table("orders"), target.table("parts"),
        ]  # fmt: skip
        assert target.entries() == {}, "planning changes nothing"
        record = run.execute(verify="checksums")
        assert counts_of(record) == {"done": 3}
        checks = record.items["orders"].checks
        assert all(check.ok for check in checks)
        assert {check.name for check in checks} == {"entry", "schema", "rows", "values"}
        assert read_by_name(target, target.table("orders")).equals(rows())
        record = run.undo()
        assert counts_of(record) == {"undone": 3}
    assert target.entries() == {}
    assert files(target.lake) == before


@pytest.mark.spec("managed.md#the-mark-of-the-manager")
def test_a_table_whose_versions_another_entry_manages_is_blocked(hive: Place, glue: Place) -> None:
    write(hive.lake, "orders", "parts")
    name = hive.namespace("first")
    with hive.connect() as first:
        first.create_namespace(api.CreateNamespaceRequest(id=list(name)))
        properties = {"managed_by": "impl"}
        location = str(hive.lake / "orders.lance")
        request = api.RegisterTableRequest(
            id=[*name, "orders"], location=location, properties=properties
        )
        first.register_table(request)
        for place in (hive, glue):
            with plan_registration(place) as run:
                plan = run.migration.plan()
            [blocked] = plan.blocked
            assert blocked.source == ("orders",)
            assert f"managed by '{name[0]}.orders' of thrift:" in str(blocked.problems)
            assert ("parts",) in [item.source for item in plan.to_do]


def pylance(directory: Path, **properties: str) -> api.LanceNamespace:
    return connect_lance("dir", {"root": str(directory), **properties})


def create(namespace: api.LanceNamespace, *names: str) -> None:
    namespace.create_table(api.CreateTableRequest(id=list(names)), ipc(rows()))


def test_a_directory_with_a_manifest_keeps_its_namespaces_and_properties(hive: Place) -> None:
    made = pylance(hive.lake, manifest_enabled="true", dir_listing_enabled="false")
    create(made, "top")
    made.create_namespace(api.CreateNamespaceRequest(id=[hive.prefix + "inner"]))
    request = api.CreateTableRequest(id=[hive.prefix + "inner", "deep"], properties={"a": "b"})
    made.create_table(request, ipc(rows()))
    with plan_registration(hive, namespace=hive.namespace("outer")) as run:
        assert counts_of(run.execute()) == {"done": 4}
    found = hive.entries()
    assert found[f"{hive.prefix}inner.deep"]["parameters"]["a"] == "b"
    assert read_by_name(hive, hive.table("deep", "inner")).equals(rows())
    assert read_by_name(hive, hive.table("top", "outer")).equals(rows())


def test_a_mixed_directory_has_each_table_once_and_none_that_was_deregistered(hive: Place) -> None:
    made = pylance(hive.lake)
    create(made, "in_both")
    plain = pylance(hive.lake, manifest_enabled="false")
    create(plain, "listed")
    create(plain, "gone")
    plain.deregister_table(api.DeregisterTableRequest(id=["gone"]))
    plain.declare_table(api.DeclareTableRequest(id=["declared"]))
    (hive.lake / "others").mkdir()
    (hive.lake / "a file.lance").touch()
    with plan_registration(hive) as run:
        plan = run.migration.plan()
    assert [item.source for item in plan.to_do][1:] == [("in_both",), ("listed",)]
    [left] = [item for item in plan.items if item.nothing_to_do]
    assert left.source == ("declared",)
    assert "no data" in left.nothing_to_do


def test_a_table_that_may_not_be_read_is_blocked_alone(
    hive: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(hive.lake, "closed", "good")
    children = register._children

    def refuse_one(directory: Directory, location: str) -> Any:
        if "closed" in location:
            raise errors.PermissionDeniedError(f"{location} may not be read")
        return children(directory, location)

    # Its mode would not stop root, who may run the tests.
    monkeypatch.setattr(register, "_children", refuse_one)
    with plan_registration(hive) as run:
        plan = run.migration.plan()
    [blocked] = plan.blocked
    assert blocked.source == ("closed",)
    assert "may not be read" in blocked.blockers[0].text
    assert ("good",) in [item.source for item in plan.to_do]


def test_a_directory_in_an_object_store_is_registered(glue: Place, glue_server: GlueServer) -> None:
    bucket = glue.prefix.replace("_", "-")
    glue_server.make_bucket(bucket)
    root, options = f"s3://{bucket}/lake", glue_server.storage_options
    for name in ("listed", "gone"):
        lance.write_dataset(rows(), f"{root}/{name}.lance", storage_options=options)
    stored = {f"storage.{key}": value for key, value in options.items()}
    plain = connect_lance("dir", {"root": root, "manifest_enabled": "false", **stored})
    plain.deregister_table(api.DeregisterTableRequest(id=["gone"]))
    made = connect_lance("dir", {"root": root, "dir_listing_enabled": "false", **stored})
    create(made, "in_manifest")
    place = replace(glue, properties={**glue.properties, **stored})
    with place.connect() as namespace:
        source = Directory.at(root, options)
        run = Run(
            "register",
            Endpoints(source, namespace, source.address, address_of(namespace)),
            glue.migrations,
        )
        plan = run.plan(namespace=place.namespace())
        assert [item.source for item in plan.to_do][1:] == [("in_manifest",), ("listed",)]
        assert counts_of(run.execute(verify="checksums")) == {"done": 3}
        assert read_by_name(place, place.table("listed")).equals(rows())
        run.undo()
    assert glue.entries() == {}
    kept = (run.migration.directory / "plan.json").read_text()
    assert options["aws_secret_access_key"] not in kept


def test_deep_namespaces_are_blocked_unless_they_are_flattened(hive: Place) -> None:
    made = pylance(hive.lake)
    made.create_namespace(api.CreateNamespaceRequest(id=["a"]))
    made.create_namespace(api.CreateNamespaceRequest(id=["a", "b"]))
    create(made, "a", "b", "t")
    with plan_registration(hive) as run:
        plan = run.migration.plan()
        [blocked] = plan.blocked
        assert "flatten" in blocked.blockers[0].text
        with pytest.raises(errors.InvalidInputError, match="blocked"):
            run.execute()
        plan = run.plan_again(flatten=True)
        assert [item.target for item in plan.to_do] == [hive.namespace(), hive.table("a_b_t")]


def test_what_is_blocked_keeps_the_rest_from_running_unless_it_is_left_out(
    hive: Place, tmp_path: Path
) -> None:
    write(hive.lake, "Same", "same", "bad name", "good", "taken")
    register_rows(hive, "taken", tmp_path / "else" / "taken.lance")
    with plan_registration(hive) as run:
        plan = run.migration.plan()
        problems = {item.source[0]: item.blockers[0].text for item in plan.blocked}
        assert set(problems) == {"Same", "same", "bad name", "taken"}
        assert "same target" in problems["same"]
        assert "already used by a Lance table" in problems["taken"]
        with pytest.raises(errors.InvalidInputError, match="4 of 5 items"):
            run.execute()
        assert [name for name in hive.entries() if name.endswith("good")] == []
        record = run.execute(skip_blocked=True)
        assert counts_of(record) == {"blocked": 4, "done": 1}
        assert record.state is State.DONE


def test_tables_that_have_their_entry_already_are_left_alone_and_not_undone(hive: Place) -> None:
    write(hive.lake, "a")
    with plan_registration(hive) as run:
        run.execute()
        write(hive.lake, "b")
        assert [item.source for item in run.plan_again().to_do] == [("b",)]
        run.execute()
        run.undo()
    assert set(hive.entries()) == {hive.prefix, f"{hive.prefix}.a"}


def test_a_plan_whose_source_is_gone_is_refused_before_the_first_change(hive: Place) -> None:
    write(hive.lake, "a", "b")
    with plan_registration(hive) as run:
        (hive.lake / "b.lance").rename(hive.lake / "elsewhere")
        with pytest.raises(errors.ConcurrentModificationError, match="plan again"):
            run.execute()
        assert hive.entries() == {}
        assert run.migration.record().state is State.PLANNED


@pytest.mark.spec("migration.md#running")
def test_a_name_that_is_taken_after_the_plan_fails_alone_and_is_tried_again(
    hive: Place, tmp_path: Path
) -> None:
    write(hive.lake, "a", "b")
    hive.make_namespace()
    with plan_registration(hive) as run, hive.connect() as namespace:
        request = api.RegisterTableRequest(id=list(hive.table("b")), location=str(tmp_path / "x"))
        namespace.register_table(request)
        record = run.execute()
        assert counts_of(record) == {"done": 1, "failed": 1}
        error = error_of(record, "b")
        assert "after the plan was made" in error.message
        namespace.deregister_table(api.DeregisterTableRequest(id=list(hive.table("b"))))
        assert counts_of(run.execute()) == {"done": 2}


def test_tables_of_a_namespace_whose_versions_the_catalog_holds_are_managed(hive: Place) -> None:
    write(hive.lake, "a")
    make_managing(hive)
    with plan_registration(hive) as run, hive.connect() as namespace:
        assert counts_of(run.execute()) == {"done": 1}
        request = api.DescribeTableRequest(id=list(hive.table("a")))
        assert namespace.describe_table(request).managed_versioning is True
        run.undo()
    assert set(hive.entries()) == {hive.prefix}
    assert lance.dataset(str(hive.lake / "a.lance")).count_rows() == 3


@pytest.mark.spec("migration.md#undoing")
def test_killed_while_the_catalog_begins_to_manage_a_table_it_can_be_undone(hive: Place) -> None:
    write(hive.lake, "a")
    make_managing(hive)
    table = ".".join(hive.table("a"))
    with plan_registration(hive) as run, hive.connect() as namespace:
        with pytest.raises(Died), die_before("done", "manage"):
            run.execute()
        assert hive.entries()[table]["parameters"]["managed_by"] == "impl"
        set_parameter(hive, "a", "by", "others")
        with pytest.raises(errors.InvalidTableStateError, match="was changed since"):
            run.undo()
        set_parameter(hive, "a", "by", None)
        assert run.undo().state is State.UNDONE
        assert set(hive.entries()) == {hive.prefix}
        run.plan_again()
        with pytest.raises(Died), die_before("done", "manage"):
            run.execute()
        assert counts_of(run.execute()) == {"done": 1}
        namespace.release_table(hive.table("a"))
        with pytest.raises(errors.InvalidTableStateError, match="was changed since"):
            run.undo()


@pytest.mark.spec("migration.md#undoing")
def test_what_others_changed_since_is_not_undone_unless_it_is_left_alone(target: Place) -> None:
    write(target.lake, "a", "b", "c")
    with plan_registration(target) as run, target.connect() as namespace:
        run.execute()
        identifier = list(target.table("a"))
        namespace.deregister_table(api.DeregisterTableRequest(id=identifier))
        namespace.register_table(
            api.RegisterTableRequest(id=identifier, location=str(target.lake / "a.lance"))
        )
        namespace.deregister_table(api.DeregisterTableRequest(id=list(target.table("c"))))
        before = target.entries()
        with pytest.raises(errors.InvalidTableStateError, match="it was created since"):
            run.undo()
        assert target.entries() == before
        record = run.undo(skip_changed=True)
        assert counts_of(record) == {"failed": 1, "undone": 3}
    assert [name.split(".")[-1] for name in target.entries()] == [target.prefix, "a"]


@pytest.mark.spec("migration.md#undoing")
def test_a_table_that_was_renamed_since_is_named_and_not_undone(hive: Place) -> None:
    write(hive.lake, "a")
    with plan_registration(hive) as run, hive.connect() as namespace:
        run.execute()
        renamed = api.RenameTableRequest(id=list(hive.table("a")), new_table_name="b")
        namespace.rename_table(renamed)
        with pytest.raises(errors.InvalidTableStateError, match=r"was renamed to '.*\.b'"):
            run.undo()
        back = api.RenameTableRequest(id=list(hive.table("b")), new_table_name="a")
        namespace.rename_table(back)
        assert counts_of(run.undo()) == {"undone": 2}
    assert hive.entries() == {}


# -- entries of another catalog --------------------------------------------------------------------


@pytest.fixture(params=["hive to glue", "hive to unity", "glue to hive", "unity to hive"])
def endpoints(request: pytest.FixtureRequest) -> tuple[Place, Place]:
    source, target = request.param.split(" to ")
    return request.getfixturevalue(source), request.getfixturevalue(target)


def plan_entries(source: Place, target: Place, **options: Any) -> AbstractContextManager[Run]:
    """Return `planned` for the entries of a source's tables in a target."""
    names = ".".join((*source.outer, f"{source.prefix}*"))
    given = {"include": (f"{names}.*",), "namespace": target.outer, **options}
    return planned("entries", between(source, target), source.migrations, **given)


@pytest.mark.spec("migration.md#parts")
def test_entries_are_copied_and_neither_source_nor_files_change(
    endpoints: tuple[Place, Place],
) -> None:
    source, target = endpoints
    lake = source.lake
    for database in ("one", "two"):
        register_rows(source, "orders", lake / f"{database}.lance", database)
    with source.connect() as namespace:
        request = api.RegisterTableRequest(
            id=list(source.table("kept", "one")),
            location=str(lake / "one.lance"),
            properties={"owner": "somebody"},
        )
        namespace.register_table(request)
    before, data = source.entries(), files(lake)
    found = target.entries()
    with plan_entries(source, target) as run:
        record = run.execute(verify="checksums")
        assert counts_of(record) == {"done": 5}
        # Source and target have databases of the same names.
        copies = target.raw(source.prefix)
        assert copies[f"{source.prefix}one.kept"]["parameters"]["owner"] == "somebody"
        copied = (*target.outer, f"{source.prefix}two", "orders")
        assert read_by_name(target, copied).equals(rows())
        run.undo()
    assert target.raw(source.prefix) == found == {}
    assert source.entries() == before
    assert files(lake) == data


def test_all_tables_can_go_into_one_namespace(hive: Place, glue: Place) -> None:
    register_rows(hive, "a", database="one")
    register_rows(hive, "b", database="two")
    with plan_entries(hive, glue, namespace=glue.namespace()) as run:
        run.execute()
    assert set(glue.entries()) == {glue.prefix, f"{glue.prefix}.a", f"{glue.prefix}.b"}


def test_foreign_entries_are_left_out_and_managed_tables_are_blocked(
    hive: Place, glue: Place, tmp_path: Path
) -> None:
    table = register_rows(hive, "held")
    with hive.connect() as namespace:
        namespace.manage_table(table)
    with raw_client(hive.port) as client:
        other = client.get_table(*table)
        other.tableName, other.parameters = "foreign", {"EXTERNAL": "TRUE"}
        other.sd.location = f"file:{tmp_path}/foreign"
        client.create_table(other)
    with plan_entries(hive, glue) as run:
        plan = run.migration.plan()
    [item] = plan.items
    assert "management" in item.blockers[0].text
    assert any(note.startswith("1 entries") for note in plan.notes)


def test_a_source_that_changed_since_the_plan_is_refused(hive: Place, glue: Place) -> None:
    table = register_rows(hive, "a")
    with plan_entries(hive, glue) as run, hive.connect() as namespace:
        namespace.deregister_table(api.DeregisterTableRequest(id=list(table)))
        lance.write_dataset(rows(), str(hive.lake / "other.lance"))
        request = api.RegisterTableRequest(id=list(table), location=str(hive.lake / "other.lance"))
        namespace.register_table(request)
        with pytest.raises(errors.ConcurrentModificationError, match="changed since the plan"):
            run.execute()
    assert glue.raw(hive.prefix) == {}


def test_rows_that_are_added_since_the_plan_do_not_make_it_wrong(hive: Place, glue: Place) -> None:
    register_rows(hive, "a")
    with plan_entries(hive, glue) as run:
        lance.write_dataset(rows(2, 3), str(hive.lake / "a.lance"), mode="append")
        assert counts_of(run.execute(verify="sample")) == {"done": 2}


def test_the_same_catalog_twice_is_refused(hive: Place) -> None:
    with pytest.raises(errors.InvalidInputError, match="same catalog"), in_place("entries", hive):
        raise AssertionError("not reached")


def test_without_making_namespaces_their_tables_are_blocked(hive: Place, glue: Place) -> None:
    register_rows(hive, "a")
    with plan_entries(hive, glue, make_namespaces=False) as run:
        [item] = run.migration.plan().items
    assert "does not exist" in item.blockers[0].text


def test_the_name_of_a_table_with_a_warning_is_checked_too(hive: Place) -> None:
    facts = EntryFacts(location=str(hive.lake / "t.lance"))
    candidates = [
        Candidate(("t",), ("A", "T"), facts, problems=(warning("It is not sorted"),)),
        Candidate(("u",), ("a", "b", "u"), facts, problems=(warning("It is not sorted"),)),
    ]
    with hive.connect() as namespace:
        folded, too_deep = plan_items(namespace.tables, candidates, make_namespaces=True)[1:]
    assert (folded.target, folded.blockers) == (("a", "t"), [])
    assert len(too_deep.blockers) == 1

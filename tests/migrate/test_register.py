"""``register``: directories of both layouts get entries, and their files stay as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pytest
from lance_namespace import connect as connect_lance
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    InvalidTableStateError,
    PermissionDeniedError,
)
from migrate.building import (
    Run,
    counts_of,
    from_directory,
    make_managing,
    planned,
    read_by_name,
    registering,
    rows,
    write,
)
from migrate.places import Place, files
from migrate.sparking import Died, dying_before
from servers.glue_server import GlueServer
from servers.hive_raw import raw_client

from lance_bridge.testing.build import ipc
from lance_bridge_migrate import Directory, Endpoints, Migrations, State, address_of
from lance_bridge_migrate.migrations import register

pytestmark = [pytest.mark.servers, pytest.mark.spec("migration.md#register")]


@pytest.fixture(params=["hive", "glue", "unity"])
def target(request: pytest.FixtureRequest) -> Place:
    place: Place = request.getfixturevalue(request.param)
    return place


@pytest.mark.spec("migration.md#parts", "migration.md#undoing", "migration.md#verifying")
def test_a_directory_of_tables_is_registered_and_its_files_stay_as_they_are(
    target: Place, lake: Path, migrations: Migrations
) -> None:
    write(lake, "orders", "parts")
    before = files(lake)
    with from_directory(lake, target) as endpoints:
        run = Run("register", endpoints, migrations)
        plan = run.plan(namespace=target.namespace())
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
    assert files(lake) == before


def pylance(directory: Path, **properties: str) -> api.LanceNamespace:
    return connect_lance("dir", {"root": str(directory), **properties})


def create(namespace: api.LanceNamespace, *names: str) -> None:
    namespace.create_table(api.CreateTableRequest(id=list(names)), ipc(rows()))


def test_a_directory_with_a_manifest_keeps_its_namespaces_and_properties(
    hive: Place, lake: Path, migrations: Migrations
) -> None:
    made = pylance(lake, manifest_enabled="true", dir_listing_enabled="false")
    create(made, "top")
    made.create_namespace(api.CreateNamespaceRequest(id=[hive.prefix + "inner"]))
    request = api.CreateTableRequest(id=[hive.prefix + "inner", "deep"], properties={"a": "b"})
    made.create_table(request, ipc(rows()))
    with planned(
        "register", from_directory(lake, hive), migrations, namespace=hive.namespace("outer")
    ) as run:
        assert counts_of(run.execute()) == {"done": 4}
    found = hive.entries()
    assert found[f"{hive.prefix}inner.deep"]["parameters"]["a"] == "b"
    assert read_by_name(hive, hive.table("deep", "inner")).equals(rows())
    assert read_by_name(hive, hive.table("top", "outer")).equals(rows())


def test_a_mixed_directory_has_each_table_once_and_none_that_was_deregistered(
    hive: Place, lake: Path, migrations: Migrations
) -> None:
    made = pylance(lake)
    create(made, "in_both")
    plain = pylance(lake, manifest_enabled="false")
    create(plain, "listed")
    create(plain, "gone")
    plain.deregister_table(api.DeregisterTableRequest(id=["gone"]))
    plain.declare_table(api.DeclareTableRequest(id=["declared"]))
    (lake / "others").mkdir()
    (lake / "a file.lance").touch()
    with from_directory(lake, hive) as endpoints:
        plan = Run("register", endpoints, migrations).plan(namespace=hive.namespace())
    assert [item.source for item in plan.to_do][1:] == [("in_both",), ("listed",)]
    [left] = [item for item in plan.items if item.nothing_to_do]
    assert left.source == ("declared",)
    assert "no data" in left.nothing_to_do


def test_a_table_that_may_not_be_read_is_blocked_alone(
    hive: Place, lake: Path, migrations: Migrations, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(lake, "closed", "good")
    children = register._children

    def refuse_one(directory: Directory, location: str) -> Any:
        if "closed" in location:
            raise PermissionDeniedError(f"{location} may not be read")
        return children(directory, location)

    # Its mode would not stop root, who may run the tests.
    monkeypatch.setattr(register, "_children", refuse_one)
    with from_directory(lake, hive) as endpoints:
        plan = Run("register", endpoints, migrations).plan(namespace=hive.namespace())
    [blocked] = plan.blocked
    assert blocked.source == ("closed",)
    assert "may not be read" in blocked.blockers[0].text
    assert ("good",) in [item.source for item in plan.to_do]


def test_a_directory_in_an_object_store_is_registered(
    glue: Place, glue_server: GlueServer, migrations: Migrations
) -> None:
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
            migrations,
        )
        plan = run.plan(namespace=place.namespace())
        assert [item.source for item in plan.to_do][1:] == [("in_manifest",), ("listed",)]
        assert counts_of(run.execute(verify="checksums")) == {"done": 3}
        assert read_by_name(place, place.table("listed")).equals(rows())
        run.undo()
    assert glue.entries() == {}
    kept = (run.migration.directory / "plan.json").read_text()
    assert options["aws_secret_access_key"] not in kept


def test_deep_namespaces_are_blocked_unless_they_are_flattened(
    hive: Place, lake: Path, migrations: Migrations
) -> None:
    made = pylance(lake)
    made.create_namespace(api.CreateNamespaceRequest(id=["a"]))
    made.create_namespace(api.CreateNamespaceRequest(id=["a", "b"]))
    create(made, "a", "b", "t")
    with from_directory(lake, hive) as endpoints:
        run = Run("register", endpoints, migrations)
        plan = run.plan(namespace=hive.namespace())
        [blocked] = plan.blocked
        assert "flatten" in blocked.blockers[0].text
        with pytest.raises(InvalidInputError, match="blocked"):
            run.execute()
        plan = run.plan(namespace=hive.namespace(), flatten=True)
        assert [item.target for item in plan.to_do] == [hive.namespace(), hive.table("a_b_t")]


@pytest.mark.spec("migration.md#plan")
def test_what_is_blocked_keeps_the_rest_from_running_unless_it_is_left_out(
    hive: Place, lake: Path, migrations: Migrations, tmp_path: Path
) -> None:
    write(lake, "Same", "same", "bad name", "good", "taken")
    hive.make_namespace()
    write(tmp_path / "else", "taken")
    with hive.connect() as namespace:
        namespace.register_table(
            api.RegisterTableRequest(
                id=list(hive.table("taken")), location=str(tmp_path / "else" / "taken.lance")
            )
        )
    with from_directory(lake, hive) as endpoints:
        run = Run("register", endpoints, migrations)
        plan = run.plan(namespace=hive.namespace())
        problems = {item.source[0]: item.blockers[0].text for item in plan.blocked}
        assert set(problems) == {"Same", "same", "bad name", "taken"}
        assert "same target" in problems["same"]
        assert "already used by a Lance table" in problems["taken"]
        with pytest.raises(InvalidInputError, match="4 of 5 items"):
            run.execute()
        assert [name for name in hive.entries() if name.endswith("good")] == []
        record = run.execute(skip_blocked=True)
        assert counts_of(record) == {"blocked": 4, "done": 1}
        assert record.state is State.DONE


@pytest.mark.spec("migration.md#plan")
def test_tables_that_have_their_entry_already_are_left_alone_and_not_undone(
    hive: Place, lake: Path, migrations: Migrations
) -> None:
    write(lake, "a")
    with from_directory(lake, hive) as endpoints:
        first = Run("register", endpoints, migrations)
        first.plan(namespace=hive.namespace())
        first.execute()
        write(lake, "b")
        second = Run("register", endpoints, migrations)
        plan = second.plan(namespace=hive.namespace())
        assert [item.source for item in plan.to_do] == [("b",)]
        second.execute()
        second.undo()
    assert set(hive.entries()) == {hive.prefix, f"{hive.prefix}.a"}


@pytest.mark.spec("migration.md#plan")
def test_a_plan_whose_source_is_gone_is_refused_before_the_first_change(
    hive: Place, lake: Path, migrations: Migrations
) -> None:
    write(lake, "a", "b")
    with registering(lake, hive, migrations) as run:
        (lake / "b.lance").rename(lake / "elsewhere")
        with pytest.raises(ConcurrentModificationError, match="plan again"):
            run.execute()
        assert hive.entries() == {}
        assert run.migration.record().state is State.PLANNED


@pytest.mark.spec("migration.md#running")
def test_a_name_that_is_taken_after_the_plan_fails_alone_and_is_tried_again(
    hive: Place, lake: Path, migrations: Migrations, tmp_path: Path
) -> None:
    write(lake, "a", "b")
    hive.make_namespace()
    with registering(lake, hive, migrations) as run, hive.connect() as namespace:
        request = api.RegisterTableRequest(id=list(hive.table("b")), location=str(tmp_path / "x"))
        namespace.register_table(request)
        record = run.execute()
        assert counts_of(record) == {"done": 1, "failed": 1}
        error = record.items["b"].error
        assert error is not None
        assert "after the plan was made" in error.message
        namespace.deregister_table(api.DeregisterTableRequest(id=list(hive.table("b"))))
        assert counts_of(run.execute()) == {"done": 2}


def test_tables_of_a_namespace_whose_versions_the_catalog_holds_are_managed(
    hive: Place, lake: Path, migrations: Migrations
) -> None:
    write(lake, "a")
    make_managing(hive)
    with from_directory(lake, hive) as endpoints, hive.connect() as namespace:
        run = Run("register", endpoints, migrations)
        run.plan(namespace=hive.namespace())
        assert counts_of(run.execute()) == {"done": 1}
        request = api.DescribeTableRequest(id=list(hive.table("a")))
        assert namespace.describe_table(request).managed_versioning is True
        run.undo()
    assert set(hive.entries()) == {hive.prefix}
    assert lance.dataset(str(lake / "a.lance")).count_rows() == 3


@pytest.mark.spec("migration.md#undoing")
def test_killed_while_the_catalog_begins_to_manage_a_table_it_can_be_undone(
    hive: Place, lake: Path, migrations: Migrations
) -> None:
    write(lake, "a")
    make_managing(hive)
    table = ".".join(hive.table("a"))
    with registering(lake, hive, migrations) as run, hive.connect() as namespace:
        with pytest.raises(Died), dying_before("done", "manage"):
            run.execute()
        assert hive.entries()[table]["parameters"]["managed_by"] == "impl"
        _set_parameter(hive, "a", "by", "others")
        with pytest.raises(InvalidTableStateError, match="was changed since"):
            run.undo()
        _set_parameter(hive, "a", "by", None)
        assert run.undo().state is State.UNDONE
        assert set(hive.entries()) == {hive.prefix}
        run.plan(namespace=hive.namespace())
        with pytest.raises(Died), dying_before("done", "manage"):
            run.execute()
        assert counts_of(run.execute()) == {"done": 1}
        namespace.release_table(hive.table("a"))
        with pytest.raises(InvalidTableStateError, match="was changed since"):
            run.undo()


def _set_parameter(hive: Place, name: str, key: str, value: str | None) -> None:
    """Change a parameter of an entry as another client does; None removes it."""
    with raw_client(hive.port) as client:
        entry = client.get_table(hive.prefix, name)
        entry.parameters.pop(key, None)
        if value is not None:
            entry.parameters[key] = value
        client.alter_table(hive.prefix, name, entry)


@pytest.mark.spec("migration.md#undoing")
def test_what_others_changed_since_is_not_undone_unless_it_is_left_alone(
    target: Place, lake: Path, migrations: Migrations
) -> None:
    write(lake, "a", "b", "c")
    with registering(lake, target, migrations) as run, target.connect() as namespace:
        run.execute()
        identifier = list(target.table("a"))
        namespace.deregister_table(api.DeregisterTableRequest(id=identifier))
        namespace.register_table(
            api.RegisterTableRequest(id=identifier, location=str(lake / "a.lance"))
        )
        namespace.deregister_table(api.DeregisterTableRequest(id=list(target.table("c"))))
        before = target.entries()
        with pytest.raises(InvalidTableStateError, match="it was created since"):
            run.undo()
        assert target.entries() == before
        record = run.undo(skip_changed=True)
        assert counts_of(record) == {"failed": 1, "undone": 3}
    assert [name.split(".")[-1] for name in target.entries()] == [target.prefix, "a"]


@pytest.mark.spec("migration.md#undoing")
def test_a_table_that_was_renamed_since_is_named_and_not_undone(
    hive: Place, lake: Path, migrations: Migrations
) -> None:
    write(lake, "a")
    with registering(lake, hive, migrations) as run, hive.connect() as namespace:
        run.execute()
        renamed = api.RenameTableRequest(id=list(hive.table("a")), new_table_name="b")
        namespace.rename_table(renamed)
        with pytest.raises(InvalidTableStateError, match=r"was renamed to '.*\.b'"):
            run.undo()
        back = api.RenameTableRequest(id=list(hive.table("b")), new_table_name="a")
        namespace.rename_table(back)
        assert counts_of(run.undo()) == {"undone": 2}
    assert hive.entries() == {}

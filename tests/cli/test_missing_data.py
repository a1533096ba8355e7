"""A table whose files are gone: the commands, the doctor and the API say the same of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import lance_namespace as api
import pytest

from lance_bridge.testing.build import ipc
from lance_bridge_doctor import Kind

from .conftest import ORDERS, Lake
from .findings import fix, the_only
from .running import answer_of, run

pytestmark = [pytest.mark.servers, pytest.mark.spec("common.md#presence-of-data")]

COMMANDS = (
    ["table", "head"],
    ["table", "count"],
    ["table", "describe"],
    ["table", "query", "--where", "id = 1"],
    ["table", "versions"],
)


def refused(*command: str, place: Path) -> None:
    """Require a command to fail with the location and the way out, in one line."""
    said = run(*command, code=1).stderr
    assert f"is missing: there is no version at {place}, " in said
    assert "Restore the files there, or deregister or drop the table and create it again" in said
    assert "no data yet" not in said


@pytest.mark.parametrize("is_empty", [False, True], ids=["no directory", "an empty directory"])
@pytest.mark.parametrize("properties", [{}, {"managed_by": "impl"}], ids=["storage", "managed"])
def test_commands_say_that_the_data_is_missing(
    lake: Lake, properties: dict[str, str], is_empty: bool
) -> None:
    name = lake.create("orders", **properties)
    place = lake.place("orders")
    shutil.rmtree(place)
    if is_empty:
        place.mkdir()
    for command, *options in ((" ".join(each[:2]), *each[2:]) for each in COMMANDS):
        refused(*command.split(), "prod", name, *options, place=place)
    assert lake.place("orders") == place
    listed = answer_of("table", "list", "prod", lake.database, "--with-data")["tables"]
    assert listed == [{"table": name}]
    for mode in ("create", "exist_ok", "overwrite"):
        request = api.CreateTableRequest(id=[lake.database, "orders"], mode=mode)
        with pytest.raises(api.InvalidTableStateError, match="is missing"):
            lake.namespace.create_table(request, ipc(ORDERS))
    with pytest.raises(api.InvalidTableStateError, match="is missing"):
        lake.namespace.insert_into_table(
            api.InsertIntoTableRequest(id=[lake.database, "orders"]), ipc(ORDERS)
        )
    with pytest.raises(Exception, match="is missing"):
        lance.write_dataset(
            ORDERS, namespace_client=lake.namespace, table_id=[lake.database, "orders"]
        )
    assert [*place.rglob("*")] == []
    assert place.exists() is is_empty
    found = the_only(Kind.LOCATION_GONE, f"there is no version at {place}")
    fix(found)
    lake.create("orders")
    assert run("table", "count", "prod", name).stdout == "5\n"


def test_a_directory_above_that_is_gone_is_unreachable(lake: Lake, tmp_path: Path) -> None:
    """As when a disk is not mounted."""
    name = lake.create("orders")
    place = lake.place("orders")
    shutil.move(place.parent, tmp_path / "unmounted")
    for command in ("head", "count"):
        said = run("table", command, "prod", name, code=1).stderr
        assert "check that its disk is mounted" in said
        assert "is missing" not in said
    the_only(Kind.STORAGE, "check that its disk is mounted")
    shutil.move(tmp_path / "unmounted", place.parent)
    assert run("table", "count", "prod", name).stdout == "5\n"


def test_a_table_that_was_never_written_is_only_declared(lake: Lake) -> None:
    lake.namespace.declare_table(api.DeclareTableRequest(id=[lake.database, "empty"]))
    name = lake.name("empty")
    assert "is declared and has no data yet" in run("table", "head", "prod", name, code=1).stderr
    assert answer_of("table", "describe", "prod", name)["only_declared"]
    assert answer_of("table", "list", "prod", lake.database, "--with-data")["tables"] == []


def test_a_wrong_location_is_noticed_when_it_is_registered(lake: Lake, tmp_path: Path) -> None:
    place = tmp_path / "typo.lance"
    name = lake.name("orders")
    done = run("table", "register", "prod", name, str(place))
    assert f"{place} has no Lance table" in done.stderr
    refused("table", "count", "prod", name, place=place)
    fix(the_only(Kind.LOCATION_GONE))

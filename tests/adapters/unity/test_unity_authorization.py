"""A server with authorization: it checks a location before the name, and says "Access denied"."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import lance
import pytest
from lance_namespace import ErrorCode
from servers.unity import UnityServer

from lance_bridge.testing.build import rows
from lance_bridge.testing.calls import Calls
from lance_bridge.testing.expect import refused
from lance_bridge_unity import UnityNamespace

pytestmark = [pytest.mark.quick, pytest.mark.spec("unity.md#rights")]

TABLE = ["c", "s", "t"]
EXISTS, DENIED = ErrorCode.TABLE_ALREADY_EXISTS, ErrorCode.PERMISSION_DENIED
Connect = Callable[[str], Calls]


@pytest.fixture
def connect(server: UnityServer, tmp_path: Path) -> Iterator[Connect]:
    """Makes clients of users who have no rights yet."""
    server.grants.refuses_overlaps = True
    made: list[UnityNamespace] = []

    def user(name: str) -> Calls:
        token = server.grants.add_user(name)
        made.append(UnityNamespace(host=server.url, root=str(tmp_path / "lake"), token=token))
        return Calls(made[-1])

    yield user
    for namespace in made:
        namespace.close()


@pytest.fixture
def mia(server: UnityServer, connect: Connect) -> Calls:
    """A user who may create tables in ``c.s``."""
    calls = connect("mia")
    server.grants.grant("mia", "c", "USE CATALOG")
    server.grants.grant("mia", "c.s", "USE SCHEMA", "CREATE TABLE")
    return calls


@pytest.fixture
def place(tmp_path: Path) -> str:
    location = str(tmp_path / "data" / "t.lance")
    lance.write_dataset(rows(range(3)), location)
    return location


def test_a_table_that_exists_at_the_location_already_exists(mia: Calls, place: str) -> None:
    mia.register_table(TABLE, place)
    with refused(EXISTS, naming="c.s.t"):
        mia.register_table(TABLE, place)
    with refused(EXISTS, naming="c.s.t"):
        mia.register_table(TABLE, f"{place}/inside")
    with refused(EXISTS, naming="c.s.t"):
        mia.declare_table(TABLE, location=place)
    with refused(EXISTS, naming="c.s.t"):
        mia.create_table(TABLE, rows(range(2)), location=place)
    assert mia.count(TABLE) == 3
    mia.create_table(TABLE, rows(range(5)), location=place, mode="Overwrite")
    assert mia.count(TABLE) == 5


def test_a_declared_table_can_be_declared_and_created_again_at_its_location(
    mia: Calls, tmp_path: Path
) -> None:
    location = str(tmp_path / "data" / "later.lance")
    first = mia.declare_table(TABLE, location=location)
    assert mia.declare_table(TABLE, location=location).location == first.location
    mia.create_table(TABLE, rows(range(4)), location=location)
    assert mia.count(TABLE) == 4


@pytest.mark.parametrize("owner", ["mia", "eve"])
def test_a_location_of_another_table_is_refused_and_the_message_says_so(
    server: UnityServer, connect: Connect, mia: Calls, place: str, owner: str
) -> None:
    other = mia if owner == "mia" else connect("eve")
    server.grants.grant("eve", "c", "USE CATALOG", "USE SCHEMA", "CREATE TABLE")
    other.register_table(["c", "s", "other"], place)
    for location in (place, f"{place}/part", str(Path(place).parent)):
        with refused(DENIED, naming="overlaps"):
            mia.register_table(TABLE, location)
    assert server.counts["POST /tables"] == 4
    assert lance.dataset(place).count_rows() == 3


def test_what_is_taken_by_a_table_that_she_may_not_see_is_no_table_of_hers(
    server: UnityServer, mia: Calls, place: str
) -> None:
    with closing(UnityNamespace(host=server.url)) as admin:
        Calls(admin).register_table(TABLE, place)
    with refused(DENIED, naming="c.s.t"):
        mia.register_table(TABLE, place)
    with refused(EXISTS, naming="c.s.t"):
        mia.register_table(TABLE, f"{place}2")


NEEDS: dict[str, tuple[Callable[[Calls], object], str]] = {
    "create a schema": (lambda it: it.create_namespace(["c", "n"]), "CREATE SCHEMA on the catalog"),
    "create with a root": (
        lambda it: it.create_namespace(["c", "n"], properties={"schema.storage-root": "s3://b/r"}),
        "CREATE MANAGED STORAGE",
    ),
    "read a schema": (lambda it: it.describe_namespace(["c", "s"]), "USE SCHEMA"),
    "drop a schema": (lambda it: it.drop_namespace(["c", "empty"]), "to be its owner"),
    "register a table": (lambda it: it.register_table(["c", "s", "n"], "s3://b/n"), "TABLE on the"),
    "read a table": (lambda it: it.describe_table(TABLE), "SELECT or MODIFY"),
    "rename a table": (lambda it: it.rename_table(TABLE, "u"), "SELECT or MODIFY"),
    "deregister a table": (lambda it: it.deregister_table(["c", "s", "mine"]), "the owner of the"),
}


@pytest.mark.parametrize(("call", "needed"), NEEDS.values(), ids=NEEDS)
def test_a_refusal_names_the_rights_that_the_server_wants(
    server: UnityServer, connect: Connect, call: Callable[[Calls], object], needed: str
) -> None:
    eve = connect("eve")
    server.add_schema("c", "empty")
    for name in ("t", "mine"):
        marks = {"properties": {"table_type": "lance"}, "storage_location": f"s3://b/{name}"}
        server.add_table("c", "s", name, **marks)
    server.grants.grant("eve", "c.s.mine", "SELECT")
    server.grants.grant("eve", "c", "USE CATALOG")
    if needed != "USE SCHEMA":
        server.grants.grant("eve", "c.s", "USE SCHEMA")
        server.grants.grant("eve", "c.empty", "USE SCHEMA")
    with refused(DENIED, naming=needed):
        call(eve)

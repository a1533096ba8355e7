"""Users with a part of the rights: none of their tables is lost, vended or orphaned.

The open-source server lists a schema to those who have USE SCHEMA, and its owner need not have it.
It checks a location before the name, and says "Access denied".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path

import lance
import pytest
from core.memory_catalog import vendor_properties
from lance_namespace import ErrorCode
from lance_namespace.errors import (
    InvalidTableStateError,
    LanceNamespaceError,
    PermissionDeniedError,
)
from servers.unity import UnityServer
from servers.unity.server import Raw
from servers.unity.server import table as table_body

from lance_bridge.testing.calls import Calls, refused, rows
from lance_bridge_doctor import Finding, Kind, diagnose_namespace
from lance_bridge_federated import Scope, Search
from lance_bridge_migrate import (
    Directory,
    Endpoints,
    Migrations,
    RunOptions,
    address_of,
    execute,
    make_plan,
    migration_type,
)
from lance_bridge_migrate.endpoints import Selection, entries_of
from lance_bridge_unity import UnityNamespace

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("common.md#what-listings-omit", "unity.md#rights"),
]

OWN = ["c", "own"]
TABLE = [*OWN, "t"]
SECRET = ["c", "secret", "t"]
SHARED = ["c", "s", "t"]
EXISTS, DENIED = ErrorCode.TABLE_ALREADY_EXISTS, ErrorCode.PERMISSION_DENIED
AsUser = Callable[[str], Calls]


class Users:
    """Clients of one server, each with the rights of its user; all have one root."""

    def __init__(self, server: UnityServer, root: str, stack: ExitStack) -> None:
        self.server, self.root, self._stack = server, root, stack

    def connect(self, user: str | None = "mia", **properties: str) -> Calls:
        """Return a client; without a user, the administrator's."""
        return Calls(self.namespace(user, **properties))

    def namespace(self, user: str | None = "mia", **properties: str) -> UnityNamespace:
        """Return what `connect` returns a client of."""
        token = {"token": f"token-of-{user}"} if user is not None else {}
        given = {"host": self.server.url, "root": self.root, **token, **properties}
        return self._stack.enter_context(UnityNamespace(**given))


@pytest.fixture
def users(server: UnityServer, tmp_path: Path) -> Iterator[Users]:
    """The users ``mia`` and ``bob``, who may make schemas in the catalog ``c``."""
    with ExitStack() as stack:
        for name in ("mia", "bob"):
            server.grants.add_user(name)
            server.grants.grant(name, "c", "USE CATALOG", "CREATE SCHEMA")
        yield Users(server, str(tmp_path / "lake"), stack)


@pytest.fixture
def mia(users: Users) -> Calls:
    """A user with a schema of her own, which no list shows her."""
    calls = users.connect()
    calls.create_namespace(OWN)
    assert "own" not in calls.all_namespaces(["c"])
    return calls


@pytest.fixture
def secret(users: Users) -> str:
    """The location of a table that only the administrator sees."""
    admin = users.connect(None)
    admin.create_namespace(SECRET[:-1])
    return made(admin, SECRET)


def made(calls: Calls, table: list[str]) -> str:
    """Create a table with three rows; return its location."""
    calls.create_table(table, rows(range(3)))
    return calls.describe_table(table).location or ""


def count(location: str) -> int:
    return lance.dataset(location).count_rows()


# -- DropTable -------------------------------------------------------------------------------------


@pytest.mark.spec("common.md#shared-locations")
@pytest.mark.parametrize("check", ["catalog", "namespace"])
def test_the_base_of_a_shallow_clone_in_an_unlisted_schema_is_kept(
    users: Users, mia: Calls, check: str
) -> None:
    base = made(mia, TABLE)
    clone = f"{base.removesuffix('t.lance')}clone.lance"
    source = lance.dataset(base)
    source.shallow_clone(clone, source.version)
    mia.register_table([*OWN, "clone"], clone)
    careful = users.connect(**{"drop.check-sharing": check})
    with pytest.raises(InvalidTableStateError, match=r"'c\.own\.clone' is a shallow clone"):
        careful.drop_table(TABLE)
    assert count(clone) == 3
    careful.drop_table([*OWN, "clone"])
    careful.drop_table(TABLE)
    assert not Path(base).exists()


@pytest.mark.spec("common.md#shared-locations", "unity.md#droptable")
def test_of_two_entries_at_one_place_in_an_unlisted_schema_neither_loses_its_files(
    mia: Calls,
) -> None:
    place = made(mia, TABLE)
    mia.register_table([*OWN, "again"], place)
    for name, other in (("t", "again"), ("again", "t")):
        with pytest.raises(InvalidTableStateError, match=rf"overlaps that of 'c\.own\.{other}'"):
            mia.drop_table([*OWN, name])
    assert count(place) == 3


@pytest.mark.spec("common.md#shared-locations")
def test_the_entry_that_a_location_names_is_read_in_another_unlisted_schema(mia: Calls) -> None:
    place = made(mia, TABLE)
    mia.create_namespace(["c", "own2"])
    mia.register_table(["c", "own2", "other"], place)
    with pytest.raises(InvalidTableStateError, match=r"overlaps that of 'c\.own\.t'"):
        mia.drop_table(["c", "own2", "other"])
    assert count(place) == 3


@pytest.mark.spec("common.md#shared-locations")
def test_files_that_the_entry_of_another_user_may_need_are_kept(mia: Calls, secret: str) -> None:
    mia.register_table(TABLE, secret)
    with pytest.raises(InvalidTableStateError, match=r"'c\.secret\.t' cannot be read") as refusal:
        mia.drop_table(TABLE)
    assert "Deregister" in str(refusal.value)
    assert count(secret) == 3
    mia.deregister_table(TABLE)


def test_a_location_with_a_suffix_names_the_entry_without_it(mia: Calls, secret: str) -> None:
    beside = secret.replace("t.lance", "t-0123abcd.lance")
    Path(secret).rename(beside)
    mia.register_table(TABLE, beside)
    with pytest.raises(InvalidTableStateError, match=r"'c\.secret\.t' cannot be read"):
        mia.drop_table(TABLE)
    assert count(beside) == 3


@pytest.mark.spec("common.md#dropnamespace")
def test_cascade_in_an_unlisted_schema_deletes_no_files_that_another_entry_needs(
    users: Users, mia: Calls
) -> None:
    place = made(mia, TABLE)
    mia.create_namespace(["c", "own2"])
    mia.register_table(["c", "own2", "other"], place)
    for own in (OWN, ["c", "own2"]):
        named = users.connect(**{"default-namespace": "c.own2"})
        with pytest.raises(InvalidTableStateError, match="overlaps that of"):
            named.drop_namespace(own, behavior="Cascade")
    assert count(place) == 3
    mia.deregister_table(["c", "own2", "other"])
    mia.drop_namespace(OWN, behavior="Cascade")
    assert not Path(place).exists()


# -- vended credentials ----------------------------------------------------------------------------


def put(users: Users, user: str | None, table: list[str], location: str) -> None:
    """Make an entry, as a client that looks at no storage does."""
    catalog, schema, name = table
    raw = Raw(users.server.url, f"token-of-{user}" if user is not None else None)
    raw.post(
        "/tables",
        table_body(name, catalog_name=catalog, schema_name=schema, storage_location=location),
    )
    raw.close()


def vending(users: Users, request: pytest.FixtureRequest) -> Calls:
    return users.connect(**vendor_properties(request.node.nodeid), root="s3://lake/tables")


@pytest.mark.usefixtures("mia")
@pytest.mark.spec("common.md#vending-rules")
def test_no_credentials_are_vended_for_two_entries_at_one_place_in_an_unlisted_schema(
    users: Users, request: pytest.FixtureRequest
) -> None:
    put(users, "mia", TABLE, "s3://lake/tables/t")
    calls = vending(users, request)
    assert (calls.describe_table(TABLE).storage_options or {})["aws_access_key_id"]
    put(users, "mia", [*OWN, "inside"], "s3://lake/tables/t/data")
    later = vending(users, request)
    for name, other in (("t", "inside"), ("inside", "t")):
        with pytest.raises(InvalidTableStateError, match=rf"overlaps that of 'c\.own\.{other}'"):
            later.describe_table([*OWN, name])


@pytest.mark.usefixtures("mia")
@pytest.mark.spec("common.md#vending-rules")
def test_no_credentials_are_vended_for_the_place_of_an_entry_that_she_may_not_see(
    users: Users, request: pytest.FixtureRequest
) -> None:
    users.connect(None).create_namespace(SECRET[:-1])
    place = "s3://lake/tables/c/secret.db/t.lance"
    put(users, None, SECRET, place)
    put(users, "mia", TABLE, place)
    calls = vending(users, request)
    users.server.forget_requests()
    for _ in range(2):
        with pytest.raises(InvalidTableStateError, match=r"'c\.secret\.t' cannot be read"):
            calls.describe_table(TABLE)
    assert users.server.counts["GET /schemas"] == 1, "what was read is kept"


@pytest.mark.usefixtures("mia")
def test_vending_in_a_listed_schema_reads_nothing_twice(
    users: Users, request: pytest.FixtureRequest
) -> None:
    users.server.grants.grant("mia", "c.own", "USE SCHEMA")
    put(users, "mia", TABLE, "s3://lake/tables/c/own.db/t.lance")
    calls = vending(users, request)
    users.server.forget_requests()
    calls.describe_table(TABLE)
    assert users.server.counts["GET /tables"] == 1
    assert users.server.counts["GET /tables/{full_name}"] == 1


# -- migrations ------------------------------------------------------------------------------------


@pytest.mark.spec("migration.md#register")
def test_a_directory_is_registered_in_an_unlisted_schema(
    users: Users, mia: Calls, tmp_path: Path
) -> None:
    for name in ("orders", "parts"):
        lance.write_dataset(rows(range(3)), str(tmp_path / "files" / f"{name}.lance"))
    mia.register_table([*OWN, "parts"], str(tmp_path / "files" / "parts.lance"))
    source = Directory.at(str(tmp_path / "files"))
    target = users.namespace()
    endpoints = Endpoints(source, target, source.address, address_of(target))
    plan = make_plan(migration_type("register"), endpoints, {"namespace": OWN})
    assert [item.target for item in plan.to_do] == [("c", "own", "orders")]
    migration = Migrations(tmp_path / "state").add(plan)
    options = RunOptions.model_validate({"verify": "checksums"})
    record = execute(migration_type("register"), endpoints, migration, options)
    assert all(check.ok for check in record.items["orders"].checks)
    assert mia.all_tables(OWN) == ["orders", "parts"]


@pytest.mark.spec("migration.md#register")
def test_a_name_whose_entry_no_list_shows_is_blocked_in_the_plan(
    users: Users, mia: Calls, tmp_path: Path
) -> None:
    users.server.grants.grant("mia", "c.s", "USE SCHEMA", "CREATE TABLE")
    made(users.connect(None), ["c", "s", "orders"])
    assert mia.all_tables(["c", "s"]) == []
    lance.write_dataset(rows(range(3)), str(tmp_path / "files" / "orders.lance"))
    source = Directory.at(str(tmp_path / "files"))
    target = users.namespace()
    endpoints = Endpoints(source, target, source.address, address_of(target))
    plan = make_plan(migration_type("register"), endpoints, {"namespace": ["c", "s"]})
    [problem] = [each for item in plan.items for each in item.problems]
    assert problem.text == "The name is already used by an entry that exists and cannot be read"
    assert not plan.to_do


@pytest.mark.spec("migration.md#selecting-tables")
@pytest.mark.parametrize(
    ("pattern", "selected"), [("c.own.*", [("c", "own", "t")]), ("c.missing.*", []), ("*", [])]
)
def test_a_pattern_that_names_an_unlisted_schema_selects_its_tables(
    users: Users, mia: Calls, pattern: str, selected: list[tuple[str, ...]]
) -> None:
    made(mia, TABLE)
    found = list(entries_of(users.namespace().tables, Selection(include=(pattern,))))
    assert [entry.path for entry in found] == selected


# -- doctor ----------------------------------------------------------------------------------------


def diagnosed(calls: Calls) -> list[Finding]:
    found = diagnose_namespace(calls.client, "prod", idle=timedelta(0))
    return list(found.findings)


@pytest.mark.spec("cli.md#doctor")
def test_neither_her_own_unlisted_table_nor_one_that_she_may_not_see_is_orphaned(
    mia: Calls, secret: str
) -> None:
    made(mia, TABLE)
    mia.register_table([*OWN, "elsewhere"], _copied(mia, TABLE, "odd-place"))
    assert Path(secret).exists()
    assert diagnosed(mia) == []


def _copied(calls: Calls, table: list[str], name: str) -> str:
    """Return the location of a copy of a table beside it, whose directory names no entry."""
    location = Path(calls.describe_table(table).location or "")
    lance.write_dataset(lance.dataset(str(location)).to_table(), str(location.with_name(name)))
    return str(location.with_name(name))


@pytest.mark.spec("cli.md#doctor")
def test_data_that_has_lost_its_entry_is_orphaned_in_an_unlisted_schema(mia: Calls) -> None:
    place = made(mia, TABLE)
    mia.deregister_table(TABLE)
    [found] = diagnosed(mia)
    assert (found.kind, found.subject) == (Kind.ORPHANED_DATA, place)
    assert found.command == f"lance-bridge table register prod c.own.t {place}"


def test_the_name_of_another_entry_is_not_given_to_data_without_one(mia: Calls) -> None:
    place = made(mia, TABLE)
    copy = _copied(mia, TABLE, "other.lance")
    mia.deregister_table(TABLE)
    mia.register_table(TABLE, copy)
    [found] = diagnosed(mia)
    assert (found.kind, found.subject) == (Kind.ORPHANED_DATA, place)
    assert found.command == f"lance-bridge table register prod c.own.t_2 {place}"


@pytest.mark.spec("cli.md#doctor", "cli.md#findings")
def test_of_data_below_a_schema_that_she_may_not_see_doctor_knows_nothing(
    users: Users, mia: Calls, secret: str
) -> None:
    admin = users.connect(None)
    admin.deregister_table(SECRET)
    admin.register_table([*SECRET[:-1], "renamed"], secret)
    [found] = diagnosed(mia)
    assert (found.kind, found.subject) == (Kind.UNKNOWN_DATA, secret)
    assert "unknown" in found.message
    assert "delete" not in found.message


def test_the_problems_of_an_unlisted_table_are_found(users: Users, mia: Calls) -> None:
    place = made(mia, TABLE)
    mia.deregister_table(TABLE)
    users.server.add_table(
        "c",
        "own",
        "t",
        data_source_format="TEXT",
        storage_location=f"file://{place}",
        properties={"table_type": "lance", "managed_by": "impl"},
    )
    [found] = diagnosed(mia)
    assert (found.kind, found.subject) == (Kind.INCONSISTENT_ENTRY, "c.own.t")


# -- listings --------------------------------------------------------------------------------------


@pytest.mark.spec("common.md#listalltables")
def test_all_tables_and_a_search_include_a_schema_that_is_named(users: Users, mia: Calls) -> None:
    made(mia, TABLE)
    assert mia.list_all_tables().tables == []
    named = users.connect(**{"default-namespace": "c.own"})
    assert named.list_all_tables().tables == ["c$own$t"]
    search = Search.of(named.client, "prod", "t", [Scope.NAME])
    assert [match.table for match in search] == [tuple(TABLE)]
    users.server.grants.grant("mia", "c.own", "USE SCHEMA")
    assert named.list_all_tables().tables == ["c$own$t"], "listed and named is one schema"


def test_a_named_schema_that_does_not_exist_or_may_not_be_seen_ends_no_listing(
    users: Users, mia: Calls, secret: str
) -> None:
    assert secret
    users.server.grants.grant("mia", "c.own", "USE SCHEMA")
    made(mia, TABLE)
    for name, said in (("c.missing", []), ("missing.s", []), ("c.secret", ["c.secret"])):
        named = users.connect(**{"default-namespace": name})
        assert named.list_all_tables().tables == ["c$own$t"], name
        assert [finding.subject for finding in diagnosed(named)] == said


# -- what is not hers ------------------------------------------------------------------------------


def test_a_table_that_she_may_not_see_is_never_missing(mia: Calls, secret: str) -> None:
    assert secret
    for call in (mia.describe_table, mia.drop_table, mia.deregister_table):
        with pytest.raises(PermissionDeniedError):
            call(SECRET)
    assert count(secret) == 3


@pytest.mark.spec("unity.md#connections")
def test_a_drop_in_a_listed_schema_takes_no_more_requests(users: Users, mia: Calls) -> None:
    users.server.grants.grant("mia", "c.own", "USE SCHEMA")
    made(mia, TABLE)
    users.server.forget_requests()
    mia.drop_table(TABLE)
    assert dict(users.server.counts) == {
        "GET /tables/{full_name}": 2,
        "GET /schemas/{full_name}": 1,
        "GET /catalogs": 1,
        "GET /schemas": 1,
        "GET /tables": 1,
        "DELETE /tables/{full_name}": 1,
    }


def test_an_unlisted_schema_costs_a_drop_no_more_requests(users: Users, mia: Calls) -> None:
    made(mia, TABLE)
    users.server.forget_requests()
    mia.drop_table(TABLE)
    assert users.server.counts["GET /tables"] == 1
    assert sum(users.server.counts.values()) == 7


def test_the_administrator_sees_what_its_owner_does_not_list(users: Users, mia: Calls) -> None:
    place = made(mia, TABLE)
    admin = users.connect(None)
    admin.register_table(["c", "s", "other"], place)
    with pytest.raises(LanceNamespaceError, match=r"overlaps that of 'c\.own\.t'"):
        admin.drop_table(["c", "s", "other"])
    assert count(place) == 3


# -- what the server refuses, and what it says -----------------------------------------------------


@pytest.fixture
def user(server: UnityServer, tmp_path: Path) -> Iterator[AsUser]:
    """Makes clients of users who have no rights yet."""
    server.grants.refuses_overlaps = True
    made: list[UnityNamespace] = []

    def client(name: str) -> Calls:
        token = server.grants.add_user(name)
        made.append(UnityNamespace(host=server.url, root=str(tmp_path / "lake"), token=token))
        return Calls(made[-1])

    yield client
    for namespace in made:
        namespace.close()


@pytest.fixture
def creator(server: UnityServer, user: AsUser) -> Calls:
    """A user who may create tables in ``c.s``."""
    calls = user("mia")
    server.grants.grant("mia", "c", "USE CATALOG")
    server.grants.grant("mia", "c.s", "USE SCHEMA", "CREATE TABLE")
    return calls


@pytest.fixture
def place(tmp_path: Path) -> str:
    location = str(tmp_path / "data" / "t.lance")
    lance.write_dataset(rows(range(3)), location)
    return location


def test_a_table_that_exists_at_the_location_already_exists(creator: Calls, place: str) -> None:
    creator.register_table(SHARED, place)
    with refused(EXISTS, naming="c.s.t"):
        creator.register_table(SHARED, place)
    with refused(EXISTS, naming="c.s.t"):
        creator.register_table(SHARED, f"{place}/inside")
    with refused(EXISTS, naming="c.s.t"):
        creator.declare_table(SHARED, location=place)
    with refused(EXISTS, naming="c.s.t"):
        creator.create_table(SHARED, rows(range(2)), location=place)
    assert creator.count(SHARED) == 3
    creator.create_table(SHARED, rows(range(5)), location=place, mode="Overwrite")
    assert creator.count(SHARED) == 5


def test_a_declared_table_can_be_declared_and_created_again_at_its_location(
    creator: Calls, tmp_path: Path
) -> None:
    location = str(tmp_path / "data" / "later.lance")
    first = creator.declare_table(SHARED, location=location)
    assert creator.declare_table(SHARED, location=location).location == first.location
    creator.create_table(SHARED, rows(range(4)), location=location)
    assert creator.count(SHARED) == 4


@pytest.mark.parametrize("owner", ["mia", "eve"])
def test_a_location_of_another_table_is_refused_and_the_message_says_so(
    server: UnityServer, user: AsUser, creator: Calls, place: str, owner: str
) -> None:
    other = creator if owner == "mia" else user("eve")
    server.grants.grant("eve", "c", "USE CATALOG", "USE SCHEMA", "CREATE TABLE")
    other.register_table(["c", "s", "other"], place)
    for location in (place, f"{place}/part", str(Path(place).parent)):
        with refused(DENIED, naming="overlaps"):
            creator.register_table(SHARED, location)
    assert server.counts["POST /tables"] == 4
    assert lance.dataset(place).count_rows() == 3


def test_what_is_taken_by_a_table_that_she_may_not_see_is_no_table_of_hers(
    server: UnityServer, creator: Calls, place: str
) -> None:
    with closing(UnityNamespace(host=server.url)) as admin:
        Calls(admin).register_table(SHARED, place)
    with refused(DENIED, naming="c.s.t"):
        creator.register_table(SHARED, place)
    with refused(EXISTS, naming="c.s.t"):
        creator.register_table(SHARED, f"{place}2")


NEEDS: dict[str, tuple[Callable[[Calls], object], str]] = {
    "create a schema": (lambda it: it.create_namespace(["c", "n"]), "CREATE SCHEMA on the catalog"),
    "create with a root": (
        lambda it: it.create_namespace(["c", "n"], properties={"schema.storage-root": "s3://b/r"}),
        "CREATE MANAGED STORAGE",
    ),
    "read a schema": (lambda it: it.describe_namespace(["c", "s"]), "USE SCHEMA"),
    "drop a schema": (lambda it: it.drop_namespace(["c", "empty"]), "to be its owner"),
    "register a table": (lambda it: it.register_table(["c", "s", "n"], "s3://b/n"), "TABLE on the"),
    "read a table": (lambda it: it.describe_table(SHARED), "SELECT or MODIFY"),
    "rename a table": (lambda it: it.rename_table(SHARED, "u"), "SELECT or MODIFY"),
    "deregister a table": (lambda it: it.deregister_table(["c", "s", "mine"]), "the owner of the"),
}


@pytest.mark.parametrize(("call", "needed"), NEEDS.values(), ids=NEEDS)
def test_a_refusal_names_the_rights_that_the_server_wants(
    server: UnityServer, user: AsUser, call: Callable[[Calls], object], needed: str
) -> None:
    eve = user("eve")
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

"""The double's users: what their rights show and allow, as the real server was seen to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .unity import Bucket, UnityServer
from .unity.raw import Raw, table

pytestmark = pytest.mark.quick

SEES = (True, 200)
READS = (False, 200)
NOTHING = (False, 403)


@pytest.fixture
def server() -> Iterator[UnityServer]:
    with UnityServer() as running:
        raw = Raw.with_schema(running.url)
        raw.post("/tables", table())
        raw.close()
        yield running


@pytest.fixture
def mia(server: UnityServer) -> Iterator[Raw]:
    raw = Raw(server.url, server.grants.add_user("mia"))
    yield raw
    raw.close()


def seen(raw: Raw, schema: str = "s") -> list[tuple[bool, int]]:
    """Whether a catalog, a schema and a table are listed, and what a read by name answers."""
    answers = []
    for collection, name, parent in (
        ("catalogs", "c", {}),
        ("schemas", f"c.{schema}", {"catalog_name": "c"}),
        ("tables", f"c.{schema}.t", {"catalog_name": "c", "schema_name": schema}),
    ):
        listed = [row["name"] for row in raw.get(f"/{collection}", **parent)[collection]]
        status = raw.send("GET", f"/{collection}/{name}").status_code
        answers.append((name.rpartition(".")[2] in listed, status))
    return answers


def test_rights_show_catalog_schema_and_table_one_after_the_other(
    server: UnityServer, mia: Raw
) -> None:
    assert seen(mia) == [NOTHING, NOTHING, NOTHING]
    for name, right, expected in (
        ("c", "USE CATALOG", [SEES, NOTHING, NOTHING]),
        ("c.s", "CREATE TABLE", [SEES, NOTHING, NOTHING]),
        ("c.s.t", "SELECT", [SEES, NOTHING, NOTHING]),
        ("c.s", "USE SCHEMA", [SEES, SEES, SEES]),
    ):
        server.grants.grant("mia", name, right)
        assert seen(mia) == expected, right
    assert mia.send("POST", "/tables", table("n")).status_code == 200


def test_a_schema_of_her_own_is_in_no_list_until_its_use_is_granted(
    server: UnityServer, mia: Raw
) -> None:
    server.grants.grant("mia", "c", "USE CATALOG", "CREATE SCHEMA")
    mia.post("/schemas", {"name": "o", "catalog_name": "c"})
    mia.post("/tables", table(schema_name="o"))
    assert seen(mia, "o") == [SEES, READS, SEES]
    server.grants.grant("mia", "c.o", "USE SCHEMA")
    assert seen(mia, "o") == [SEES, SEES, SEES]
    assert mia.send("DELETE", "/tables/c.o.t").status_code == 200


def test_a_catalog_of_her_own_shows_all_that_is_in_it(mia: Raw) -> None:
    mia.post("/catalogs", {"name": "m"})
    mia.post("/schemas", {"name": "s", "catalog_name": "m"})
    mia.post("/tables", table(catalog_name="m"))
    assert [row["name"] for row in mia.get("/catalogs")["catalogs"]] == ["m"]
    assert [row["name"] for row in mia.get("/schemas", catalog_name="m")["schemas"]] == ["s"]
    assert mia.send("GET", "/tables/m.s.t").status_code == 200


def test_what_is_not_hers_is_refused_and_what_does_not_exist_is_not_found(
    server: UnityServer, mia: Raw
) -> None:
    server.grants.grant("mia", "c", "USE CATALOG")
    for method, path, body in (
        ("DELETE", "/tables/c.s.t", None),
        ("DELETE", "/schemas/c.s", None),
        ("POST", "/schemas", {"name": "o", "catalog_name": "c"}),
        ("POST", "/tables", table("n")),
    ):
        assert mia.error(method, path, body) == (403, "PERMISSION_DENIED"), path
    assert mia.error("GET", "/tables/c.s.missing") == (404, "TABLE_NOT_FOUND")
    assert mia.error("GET", "/tables/c.missing.t") == (404, "SCHEMA_NOT_FOUND")


USE, CREATE = "USE CATALOG", "CREATE SCHEMA"
USE_S, CREATE_T = "USE SCHEMA", "CREATE TABLE"
OWNER = "OWNER"

# What the server 0.4.1 and 0.7.0 answered to who has these rights on the catalog, the schema and
# the table: "x" is 403, or left out of the list of schemas. The letters are the calls of `answers`.
MEASURED = [
    (("", f"{USE_S},{CREATE_T}", OWNER), "xxxxxxxxxxxx"),
    ((USE, "", "SELECT"), "xxxxxxxxxxxx"),
    ((USE, USE_S, "SELECT"), "...xxx.xxxxx"),
    ((USE, USE_S, "MODIFY"), "...xxxxxxxxx"),
    ((USE, f"{USE_S},{CREATE_T}", ""), ".x.x.xxxxxxx"),
    ((USE, f"{USE_S},{CREATE_T}", OWNER), "...x.x...xx."),
    ((USE, OWNER, ""), "x..x.xxxxx.."),
    ((USE, f"{OWNER},{USE_S}", ""), "...x.xxxxx.."),
    ((f"{USE},{CREATE}", USE_S, OWNER), "....xx...xx."),
    ((f"{USE},{USE_S},SELECT", "", ""), "...xxx.xxxxx"),
    ((f"{USE},{USE_S},SELECT", CREATE_T, "MODIFY"), "...x.x...xxx"),
    ((OWNER, "", ""), "..x.xxxxxx.."),
    ((OWNER, OWNER, ""), ".....xxxxx.."),
    ((OWNER, OWNER, OWNER), ".....x...x.."),
]


def answers(raw: Raw, table_id: str) -> str:
    """Return ``.`` for each call that the rights allow, and ``x`` for the others."""
    schemas = raw.get("/schemas", catalog_name="c")["schemas"]
    by_table, by_path = "/temporary-table-credentials", "/temporary-path-credentials"
    calls: list[tuple[str, str, object]] = [
        ("GET", "/tables/c.s.t", None),
        ("PATCH", "/schemas/c.s", {"comment": "x"}),
        ("POST", "/schemas", {"name": "n", "catalog_name": "c"}),
        ("POST", "/tables", table("n")),
        ("POST", "/tables", table("m", storage_location="s3://bucket/t/m")),
        ("POST", by_table, {"table_id": table_id, "operation": "READ"}),
        ("POST", by_table, {"table_id": table_id, "operation": "READ_WRITE"}),
        ("POST", by_path, {"url": "s3://bucket/t/data", "operation": "PATH_READ_WRITE"}),
        ("POST", by_path, {"url": "s3://bucket/new", "operation": "PATH_CREATE_TABLE"}),
        ("DELETE", "/schemas/c.s", None),
        ("DELETE", "/tables/c.s.t", None),
    ]
    allowed = [bool(schemas)]
    allowed += [raw.send(*each).status_code != 403 for each in calls]
    return "".join("." if each else "x" for each in allowed)


@pytest.mark.parametrize(("rights", "expected"), MEASURED)
def test_rights_allow_what_they_were_seen_to_allow(
    server: UnityServer, mia: Raw, rights: tuple[str, str, str], expected: str
) -> None:
    server.grants.refuses_overlaps = True
    for name, given in zip(("c", "c.s", "c.s.t"), rights, strict=True):
        server.grants.grant("mia", name, *given.split(","))
        if OWNER in given:
            server.grants.give("mia", name)
    assert answers(mia, str(server.table("c", "s", "t")["table_id"])) == expected


def test_the_administrator_reads_all_and_drops_no_table_of_somebody_else(
    server: UnityServer, mia: Raw
) -> None:
    mia.post("/catalogs", {"name": "m"})
    mia.post("/schemas", {"name": "s", "catalog_name": "m"})
    made = mia.post("/tables", table(catalog_name="m", storage_location="s3://bucket/m"))
    admin = Raw(server.url)
    assert [row["name"] for row in admin.get("/schemas", catalog_name="m")["schemas"]] == ["s"]
    assert admin.send("GET", "/tables/m.s.t").status_code == 200
    wanted = {"table_id": made["table_id"], "operation": "READ"}
    for method, path, body in (
        ("PATCH", "/catalogs/m", {"comment": "x"}),
        ("POST", "/tables", table("n", catalog_name="m")),
        ("POST", "/temporary-table-credentials", wanted),
        ("DELETE", "/tables/m.s.t", None),
    ):
        assert admin.error(method, path, body) == (403, "PERMISSION_DENIED"), path
    server.grants.grant(None, "m", USE, USE_S, CREATE_T)
    assert admin.send("POST", "/tables", table("n", catalog_name="m")).status_code == 200


def test_nobody_has_a_storage_root_without_an_external_location(
    server: UnityServer, mia: Raw
) -> None:
    body = {"name": "r", "catalog_name": "c", "storage_root": "s3://bucket/root"}
    for raw in (Raw(server.url), mia):
        server.grants.grant("mia", "c", USE, CREATE)
        assert raw.error("POST", "/schemas", body) == (403, "PERMISSION_DENIED")


def test_a_right_that_is_taken_back_allows_nothing(server: UnityServer, mia: Raw) -> None:
    server.grants.grant("mia", "c", USE, USE_S, "SELECT")
    assert seen(mia) == [SEES, SEES, SEES]
    server.grants.revoke("mia", "c", "SELECT")
    assert seen(mia) == [SEES, SEES, NOTHING]


# -- credentials ---------------------------------------------------------------------------------


def vended(raw: Raw, table_id: str, operation: str) -> int:
    body = {"table_id": table_id, "operation": operation}
    return raw.send("POST", "/temporary-table-credentials", body).status_code


def vended_for(raw: Raw, url: str) -> int:
    body = {"url": url, "operation": "PATH_CREATE_TABLE"}
    return raw.send("POST", "/temporary-path-credentials", body).status_code


def test_credentials_of_a_table_are_for_its_owner_and_for_who_may_read_or_change_it(
    server: UnityServer, mia: Raw
) -> None:
    server.add_bucket("s3://bucket", Bucket("key", "secret"))
    for name, rights in (("c", ["USE CATALOG"]), ("c.s", ["USE SCHEMA", "CREATE TABLE"])):
        server.grants.grant("mia", name, *rights)
    own = mia.post("/tables", table("own"))["table_id"]
    other = server.table("c", "s", "t")["table_id"]
    operations = ("READ", "READ_WRITE")
    assert [vended(mia, own, each) for each in operations] == [200, 200]
    assert [vended(mia, other, each) for each in operations] == [403, 403]
    server.grants.grant("mia", "c.s.t", "SELECT")
    assert [vended(mia, other, each) for each in operations] == [200, 403]
    server.grants.grant("mia", "c.s.t", "MODIFY")
    assert [vended(mia, other, each) for each in operations] == [200, 200]
    admin = Raw(server.url)
    assert [vended(admin, each, "READ") for each in (other, own)] == [200, 403]
    admin.close()


def test_credentials_of_a_path_take_a_right_on_its_external_location(
    server: UnityServer, mia: Raw
) -> None:
    url = "file:///lake/new"
    assert vended_for(mia, url) == 403
    server.grants.grant_location("mia", "file:///lake", "READ FILES", "WRITE FILES")
    assert vended_for(mia, url) == 403
    server.grants.grant_location("mia", "file:///lake", "CREATE EXTERNAL TABLE")
    assert [vended_for(mia, each) for each in (url, "file:///lake2/new")] == [200, 403]


def test_a_table_in_an_external_location_takes_a_right_on_it(server: UnityServer, mia: Raw) -> None:
    for name, rights in (("c", ["USE CATALOG"]), ("c.s", ["USE SCHEMA", "CREATE TABLE"])):
        server.grants.grant("mia", name, *rights)
    server.grants.grant_location("bob", "file:///lake", "CREATE EXTERNAL TABLE")
    inside = table("inside", storage_location="file:///lake/inside")
    assert mia.send("POST", "/tables", inside).status_code == 403
    assert mia.send("POST", "/tables", table("outside")).status_code == 200
    server.grants.grant_location("mia", "file:///lake", "CREATE EXTERNAL TABLE")
    assert mia.send("POST", "/tables", inside).status_code == 200

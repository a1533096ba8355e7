"""A rename that the server confirms, and that did not happen, is not acknowledged.

Under load the open-source server answered two renames of one table with 204, one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from lance_namespace.errors import (
    InternalError,
    LanceNamespaceError,
    ServiceUnavailableError,
    TableNotFoundError,
)
from servers.http_faults import Request
from servers.http_proxy import Answer, Fault, HttpProxy
from servers.unity import UnityServer
from servers.unity.raw import Raw

from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.testing.build import rows
from lance_bridge.testing.calls import Calls

from .building import API, TABLE, Connect

pytestmark = [pytest.mark.quick, pytest.mark.spec("unity.md#renametable")]

RENAME = f"POST {API}/delta/v1/catalogs/c/schemas/s/tables/t/rename"
READ_BACK = f"GET {API}/tables/c.s.new"
NEW = ("c", "s", "new")
CONFIRMED = Answer(204)


@pytest.fixture
def renamed(calls: Calls) -> Calls:
    """A client that has a table ``t`` to rename."""
    calls.create_table([*TABLE], rows(range(3)))
    return calls


def meanwhile(proxy: HttpProxy, server: UnityServer, action: Callable[[Raw], object]) -> None:
    """Have another client act between a rename and its reading back."""
    done: list[object] = []

    def act(request: Request) -> bool:
        if request.key == READ_BACK and not done:
            done.append(action(Raw(server.url)))
        return False

    proxy.fail_next(act, Fault.RESET)


def test_a_rename_is_read_back_once(renamed: Calls, proxy: HttpProxy) -> None:
    proxy.reset()
    renamed.rename_table([*TABLE], "new")
    assert proxy.counts == Counter({f"GET {API}/tables/c.s.t": 1, RENAME: 1, READ_BACK: 1})


def test_a_rename_that_was_confirmed_without_effect_is_made(
    renamed: Calls, proxy: HttpProxy
) -> None:
    proxy.fail_next(RENAME, CONFIRMED)
    renamed.rename_table([*TABLE], "new")
    assert renamed.all_tables(["c", "s"]) == ["new"]
    assert renamed.count([*NEW]) == 3


def test_a_rename_that_never_has_an_effect_is_not_acknowledged(
    renamed: Calls, proxy: HttpProxy
) -> None:
    proxy.fail_next(RENAME, CONFIRMED, times=float("inf"))
    with pytest.raises(ServiceUnavailableError, match=r"confirmed to rename 'c\.s\.t' to"):
        renamed.rename_table([*TABLE], "new")
    assert proxy.counts[RENAME] == 3
    assert renamed.all_tables(["c", "s"]) == ["t"]


@pytest.mark.spec("unity.md#concurrent-changes")
def test_of_two_renames_that_were_both_confirmed_one_is_acknowledged(
    renamed: Calls, proxy: HttpProxy, server: UnityServer
) -> None:
    path = RENAME.removeprefix(f"POST {API}").replace("/t/", "/new/")
    meanwhile(proxy, server, lambda raw: raw.send("POST", path, {"new-name": "other"}))
    with pytest.raises(TableNotFoundError, match=r"c\.s\.t"):
        renamed.rename_table([*TABLE], "new")
    assert renamed.all_tables(["c", "s"]) == ["other"]


def test_another_table_of_the_new_name_is_not_the_renamed_one(
    server: UnityServer, proxy: HttpProxy, connect: Connect
) -> None:
    place = {"storage_location": "file:///data/t", "properties": {"table_type": "lance"}}
    server.add_table("c", "s", "t", data_source_format="TEXT", **place)
    catalog = connect()
    record = catalog.load_table(TABLE)
    server.add_table("c", "s", "new", data_source_format="TEXT", **place)
    proxy.fail_next(RENAME, CONFIRMED)
    with pytest.raises(OutcomeUnknownError, match="another table has that name"):
        catalog.rename_table(record, NEW)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer.of_json(403, {"error_code": "PERMISSION_DENIED"}), OutcomeUnknownError),
        (Answer.of_json(404, {"error_code": "TABLE_NOT_FOUND"}), OutcomeUnknownError),
        (
            Answer.of_json(
                500, {"error_code": "INTERNAL", "message": "Query did not return a unique result"}
            ),
            InternalError,
        ),
    ],
)
def test_a_rename_that_cannot_be_read_back_is_not_acknowledged(
    server: UnityServer,
    proxy: HttpProxy,
    connect: Connect,
    answer: Answer,
    error: type[LanceNamespaceError],
) -> None:
    server.add_table("c", "s", "t", storage_location="file:///data/t")
    catalog = connect()
    record = catalog.load_table(TABLE)
    proxy.fail_next(READ_BACK, answer)
    with pytest.raises(error):
        catalog.rename_table(record, NEW)

"""Changes whose reply is lost: nothing doubled, nothing lost, and the right error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge.catalog import NamespaceRecord, TableRecord
from lance_bridge.errors import OutcomeUnknownError, is_refusal, reason_in, retry_after_readback
from lance_bridge.testing.calls import Calls

from .memory_catalog import (
    CAPABILITIES,
    DATASET,
    SERVERS,
    TABLE,
    Client,
    MemoryNamespace,
    MemoryServer,
    Moment,
    count_rows,
    create,
    raiser,
    server_of,
    start_server,
    stream,
)

pytestmark = pytest.mark.quick

ALL_ABLE = replace(CAPABILITIES, no_rename="", no_alter="")


class LostReplies:
    """Loses the replies of the first ``times`` calls of one kind, before or after the effect."""

    def __init__(self, change: str, moment: Moment, times: int = 1) -> None:
        self.change = change
        self.moment = moment
        self.left = times

    def __call__(self, change: str, moment: Moment) -> None:
        if (change, moment) == (self.change, self.moment) and self.left:
            self.left -= 1
            raise OutcomeUnknownError(f"reply of {change} lost")


NEW = [*DATASET, "new"]
KEPT = {"properties": {"k": "v"}}
Operation = Callable[[MemoryNamespace], object]


def overwritten_namespace(ns: MemoryNamespace) -> None:
    Calls(ns).create_namespace(["empty"], mode="Overwrite", **KEPT)


def dropped(ns: MemoryNamespace) -> None:
    Calls(ns).drop_table(TABLE)


CHANGES: dict[str, tuple[Operation, str]] = {
    "create namespace": (lambda ns: Calls(ns).create_namespace(["us"], **KEPT), "create_namespace"),
    "overwrite namespace": (overwritten_namespace, "alter_namespace"),
    "drop namespace": (lambda ns: Calls(ns).drop_namespace(["empty"]), "drop_namespace"),
    "declare": (lambda ns: Calls(ns).declare_table(NEW, **KEPT), "create_table"),
    "create": (lambda ns: Calls(ns).create_table(NEW, stream(), **KEPT), "create_table"),
    "register": (
        lambda ns: Calls(ns).register_table(NEW, elsewhere(ns)),
        "create_table",
    ),
    "register again": (
        lambda ns: Calls(ns).register_table(TABLE, elsewhere(ns), mode="Overwrite"),
        "alter_table",
    ),
    "rename": (lambda ns: Calls(ns).rename_table(TABLE, "Renamed"), "rename_table"),
    "deregister": (lambda ns: Calls(ns).deregister_table(TABLE), "drop_table"),
    "drop": (dropped, "drop_table"),
}


def elsewhere(ns: MemoryNamespace) -> str:
    return f"{ns._properties['root']}/elsewhere"


each_change = pytest.mark.parametrize("case", CHANGES)


def prepare(ns: MemoryNamespace) -> MemoryNamespace:
    """Make a table and an empty namespace, in a catalog that can do everything."""
    ns.server.capabilities = ALL_ABLE
    ns.server.namespaces[("empty",)] = NamespaceRecord(("empty",), {"old": "yes"})
    create(ns, TABLE)
    ns.server.effects.clear()
    return ns


@pytest.fixture
def prepared(namespace: MemoryNamespace) -> MemoryNamespace:
    return prepare(namespace)


@pytest.fixture
def twin(tmp_path: Path) -> Iterator[MemoryNamespace]:
    """The same in another catalog, where nothing gets lost."""
    name = f"faultless {tmp_path}"
    start_server(name)
    yield prepare(MemoryNamespace(uri=name, root=str(tmp_path / "twin")))
    del SERVERS[name]


def state(ns: MemoryNamespace) -> dict[str, object]:
    """What clients can tell: namespaces, tables without what core keeps for itself, and files."""

    def own(properties: Any) -> dict[str, str]:
        return {k: v for k, v in properties.items() if not k.startswith("lance_bridge.")}

    lake, server = ns._properties["root"], ns.server
    places = [p.relative_to(lake) for p in Path(lake).rglob("*") if p.is_file()]
    tables = {p: ((r.location or "").replace(lake, ""), r) for p, r in server.tables.items()}
    return {
        "namespaces": {p: own(r.properties) for p, r in server.namespaces.items()},
        "tables": {p: (place, own(r.properties)) for p, (place, r) in tables.items()},
        "datasets": sorted(str(p.parents[1]) for p in places if p.suffix == ".manifest"),
        "data files": len([p for p in places if p.suffix == ".lance"]),
    }


@each_change
@pytest.mark.parametrize(("moment", "times"), [("before", 1), ("before", 2), ("after", 1)])
def test_a_lost_reply_neither_doubles_nor_loses_a_change(
    prepared: MemoryNamespace, twin: MemoryNamespace, case: str, moment: Moment, times: int
) -> None:
    operation, change = CHANGES[case]
    prepared.server.fault = LostReplies(change, moment, times)
    operation(prepared)
    prepared.server.fault = None
    assert prepared.server.effects == [change]
    operation(twin)
    assert state(prepared) == state(twin)


@each_change
def test_a_change_that_never_gets_through_is_reported_and_has_no_effect(
    prepared: MemoryNamespace, case: str
) -> None:
    operation, change = CHANGES[case]
    before = state(prepared)
    prepared.server.fault = LostReplies(change, "before", times=1000)
    with pytest.raises(errors.ServiceUnavailableError, match="lost"):
        operation(prepared)
    assert not prepared.server.effects
    assert state(prepared) == before
    assert prepared.server.fault.left >= 990


@each_change
def test_a_change_that_is_refused_is_not_repeated(prepared: MemoryNamespace, case: str) -> None:
    operation, change = CHANGES[case]
    asked = []

    def refuse(name: str, moment: Moment) -> None:
        if name == change:
            asked.append((name, moment))
            raise errors.PermissionDeniedError("not you")

    prepared.server.fault = refuse
    with pytest.raises(errors.PermissionDeniedError):
        operation(prepared)
    assert asked == [(change, "before")]


def lose_and_let(client: Client, change: str, act: Callable[[], None]) -> None:
    """Lose the first reply before its effect, while another client does something."""
    lost = LostReplies(change, "before")

    def fault(name: str, moment: Moment) -> None:
        try:
            lost(name, moment)
        except OutcomeUnknownError:
            act()
            raise

    server_of(client).fault = fault


@pytest.mark.parametrize("case", ["declare", "create", "register"])
def test_a_table_that_another_made_meanwhile_belongs_to_it(
    prepared: MemoryNamespace, tmp_path: Path, case: str
) -> None:
    operation, change = CHANGES[case]
    path = (*DATASET, "new")
    place = str(tmp_path / "foreign")
    lance.write_dataset(pa.table({"foreign": [1]}), place)
    foreign = TableRecord(path, place, {"table_type": "lance", "lance_bridge.id": "foreign"})

    lose_and_let(prepared, change, lambda: prepared.server.tables.update({path: foreign}))
    with pytest.raises(errors.TableAlreadyExistsError):
        operation(prepared)
    assert prepared.server.tables[path] == foreign
    assert lance.dataset(place).to_table().to_pydict() == {"foreign": [1]}


def test_a_namespace_that_another_made_meanwhile_belongs_to_it(prepared: MemoryNamespace) -> None:
    foreign = NamespaceRecord(("us",), {"lance_bridge.id": "foreign"})
    lose_and_let(
        prepared, "create_namespace", lambda: prepared.server.namespaces.update({("us",): foreign})
    )
    with pytest.raises(errors.NamespaceAlreadyExistsError):
        CHANGES["create namespace"][0](prepared)
    assert prepared.server.namespaces[("us",)] == foreign


def test_properties_that_equal_the_wanted_ones_are_not_taken_for_our_own_change(
    prepared: MemoryNamespace, server: MemoryServer
) -> None:
    made_before = NamespaceRecord(("empty",), {"k": "v", "lance_bridge.id": "earlier"})
    server.namespaces[("empty",)] = made_before
    server.fault = LostReplies("alter_namespace", "before")
    overwritten_namespace(prepared)
    assert server.effects == ["alter_namespace"]
    assert server.namespaces[("empty",)] != made_before


@pytest.mark.parametrize("case", ["deregister", "drop"])
def test_a_table_that_another_dropped_and_made_again_stays(
    prepared: MemoryNamespace, server: MemoryServer, tmp_path: Path, case: str
) -> None:
    operation, change = CHANGES[case]
    foreign = str(tmp_path / "foreign")
    lance.write_dataset(pa.table({"foreign": [1]}), foreign)
    path = tuple(TABLE)

    def replace_it() -> None:
        server.tables[path] = TableRecord(path, foreign, {"table_type": "lance"}, identity="later")

    lose_and_let(server, change, replace_it)
    operation(prepared)
    assert server.tables[path].location == foreign
    assert lance.dataset(foreign).to_table().to_pydict() == {"foreign": [1]}
    assert not server.effects


def cascaded(ns: MemoryNamespace) -> None:
    Calls(ns).drop_namespace(DATASET, behavior="Cascade")


@pytest.mark.spec("common.md#lost-replies")
@pytest.mark.parametrize("operation", [dropped, cascaded])
@pytest.mark.parametrize("call", [1, 2])
def test_a_table_that_another_renamed_keeps_its_files(
    prepared: MemoryNamespace, server: MemoryServer, operation: Operation, call: int
) -> None:
    renamed_path = (*DATASET, "Renamed")
    calls = []

    def fault(name: str, _: Moment) -> None:
        calls.append(name)
        if len(calls) == call:
            found = server.tables.pop(tuple(TABLE))
            server.tables[renamed_path] = replace(found, path=renamed_path)
        if len(calls) == 1:
            raise OutcomeUnknownError(f"reply of {name} lost")

    server.fault = fault
    with pytest.raises(errors.TableNotFoundError, match=r"'eu\.shop\.sales\.Renamed'"):
        operation(prepared)
    assert calls == ["drop_table"] * call
    assert not server.effects
    assert count_rows(prepared, [*renamed_path]) == 3


@pytest.mark.spec("common.md#lost-replies")
def test_files_stay_if_the_catalog_cannot_be_read_after_a_lost_drop(
    prepared: MemoryNamespace,
) -> None:
    location = prepared.server.tables[tuple(TABLE)].location or ""

    def close_and_lose(name: str, moment: Moment) -> None:
        if moment == "after":
            prepared.server.closed.add(tuple(DATASET))
            raise OutcomeUnknownError(f"reply of {name} lost")

    prepared.server.fault = close_and_lose
    with pytest.raises(errors.PermissionDeniedError, match=f"files are left at {location}"):
        dropped(prepared)
    assert lance.dataset(location).count_rows() == 3


def test_a_name_that_another_took_meanwhile_is_not_renamed_onto(prepared: MemoryNamespace) -> None:
    path = (*DATASET, "Renamed")
    foreign = TableRecord(path, "/their/place", {"table_type": "lance"}, identity="later")
    lose_and_let(prepared, "rename_table", lambda: prepared.server.tables.update({path: foreign}))
    with pytest.raises(errors.TableAlreadyExistsError):
        CHANGES["rename"][0](prepared)
    assert prepared.server.tables[path] == foreign
    assert count_rows(prepared, TABLE) == 3


# -- one change ------------------------------------------------------------------------------------


LOST = OutcomeUnknownError("lost")
TAKEN = errors.TableAlreadyExistsError("taken")


class Script:
    """Raises, or answers, one thing after the other, and counts how often it was asked."""

    def __init__(self, *steps: object) -> None:
        self._steps: Iterator[object] = iter(steps)
        self.calls = 0

    def _next(self) -> object:
        self.calls += 1
        step = next(self._steps)
        if isinstance(step, Exception):
            raise step
        return step

    def change(self) -> None:
        self._next()

    def happened(self) -> bool:
        return bool(self._next())


@pytest.mark.spec("common.md#errors-of-every-operation")
@pytest.mark.parametrize(
    ("replies", "read_back", "raised"),
    [
        ([None], [], None),
        ([TAKEN], [], errors.TableAlreadyExistsError),
        ([LOST], [True], None),
        ([LOST, LOST, None], [False, False], None),
        ([LOST, LOST, LOST], [False, False, False], OutcomeUnknownError),
        ([LOST, TAKEN], [False, False], errors.TableAlreadyExistsError),
        ([LOST], [errors.TableNotFoundError("gone")], errors.TableNotFoundError),
    ],
)
def test_a_change_is_repeated_where_it_did_not_happen_and_nowhere_else(
    replies: list[Any], read_back: list[Any], raised: type[Exception] | None
) -> None:
    change, happened = Script(*replies), Script(*read_back)
    with pytest.raises(raised) if raised else nullcontext():
        retry_after_readback(change.change, happened.happened)
    assert (change.calls, happened.calls) == (len(replies), len(read_back))


def test_a_refusal_of_the_repetition_is_success_where_the_first_had_come_late() -> None:
    retry_after_readback(Script(LOST, TAKEN).change, Script(False, True).happened)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.ServiceUnavailableError("down"), OutcomeUnknownError),
        (errors.ThrottlingError("slowly"), errors.ThrottlingError),
    ],
)
def test_what_reading_back_raises_is_reported_and_nothing_is_repeated(
    error: Exception, kind: type[Exception]
) -> None:
    change = Script(LOST)
    with pytest.raises(kind, match=f"{LOST}.*could not be read back: {error}"):
        retry_after_readback(change.change, Script(error).happened)
    assert change.calls == 1


def test_a_refusal_after_a_lost_reply_is_unknown_where_nothing_can_be_read() -> None:
    change = Script(LOST, errors.TableNotFoundError("gone"))
    readings = Script(False, errors.ServiceUnavailableError("down"))
    with pytest.raises(OutcomeUnknownError, match="down"):
        retry_after_readback(change.change, readings.happened)
    assert change.calls == 2


@pytest.mark.parametrize("broken", [KeyError("x"), RuntimeError("x")])
def test_a_defect_is_not_taken_for_an_answer(broken: Exception) -> None:
    with pytest.raises(type(broken)):
        retry_after_readback(raiser(broken), raiser(AssertionError("was read back")))


# -- what Lance says of a failed commit ------------------------------------------------------------


@pytest.mark.spec("common.md#errors-of-every-operation", "operations.md#commits-and-conflicts")
@pytest.mark.parametrize(
    ("text", "is_the_request_s"),
    [
        ("LanceError(Arrow): Divide by zero error", True),
        ("Not supported: This feature is not implemented", True),
        ("LanceError(Arrow): External error: LanceError(IO): timed out", False),
        ("LanceError(IO): Invalid user input", False),
        ("Invalid user input: file does not appear to be a Lance file", False),
        ("LanceError(IO): Compute error: Regular expression did not compile", True),
        ("Permission denied", False),
    ],
)
def test_a_failure_of_the_storage_at_any_depth_is_no_refusal(
    text: str, is_the_request_s: bool
) -> None:
    assert is_refusal(OSError(text)) is is_the_request_s


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("one\ntwo", "one"),
        (
            "Parameter validation failed:\nInvalid length\nmore",
            "Parameter validation failed: Invalid length",
        ),
        ("java.lang.X:\n\n  cause", "java.lang.X: cause"),
        ("alone:", "alone:"),
        ("", ""),
        ("a" * 400, "a" * 300),
    ],
)
def test_a_message_is_shortened_to_its_reason(message: str, reason: str) -> None:
    assert reason_in(f"  {message}\n") == reason

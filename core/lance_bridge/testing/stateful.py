"""Case: random sequences of all operations, compared with an in-memory model.

Every step makes the same call to the catalog and the model, and compares the results or the error
codes. After every step the listing of one namespace must agree, and at the end of a sequence that
of each; the data of every table that was not dropped must still exist then. Hypothesis shortens a
failing sequence, and prints it as a program. A step that a declared deviation of the target covers
is skipped.

The methods of the model return a value or raise the error type that the catalog must raise. The
catalog chooses locations: the caller sets the location of a new table in the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from lance_namespace import (
    ErrorCode,
    LanceNamespaceError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from .calls import rows
from .cases import Cases, Namespace, same_location
from .target import Target

# -- model -----------------------------------------------------------------------------------------


Ids = list[int]


@dataclass
class Entry:
    """One table: its location, and its ids, which are None if it is only declared."""

    location: str = ""
    ids: Ids | None = None


@dataclass
class Model:
    """Namespaces by name, each with its tables by name, in the catalog's spelling."""

    declare_again: bool
    create_completes: bool
    namespaces: dict[str, dict[str, Entry]] = field(default_factory=dict)
    kept: dict[str, Ids] = field(default_factory=dict)
    """Data that no entry refers to any more, and that must still exist, by location."""

    def create_namespace(self, name: str, mode: str) -> None:
        """Apply CreateNamespace."""
        if name in self.namespaces:
            if mode == "ExistOk":
                return
            if mode == "Create":
                raise NamespaceAlreadyExistsError(name)
            if self.namespaces[name]:
                raise NamespaceNotEmptyError(name)
        self.namespaces[name] = {}

    def drop_namespace(self, name: str, mode: str, behavior: str) -> None:
        """Apply DropNamespace."""
        if name not in self.namespaces:
            if mode == "Skip":
                return
            raise NamespaceNotFoundError(name)
        if self.namespaces[name] and behavior == "Restrict":
            raise NamespaceNotEmptyError(name)
        del self.namespaces[name]

    def tables(self, namespace: str) -> dict[str, Entry]:
        """Return the tables of a namespace by name."""
        if namespace not in self.namespaces:
            raise NamespaceNotFoundError(namespace)
        return self.namespaces[namespace]

    def table(self, namespace: str, name: str) -> Entry:
        """Return an entry."""
        tables = self.tables(namespace)
        if name not in tables:
            raise TableNotFoundError(name)
        return tables[name]

    def declare(self, namespace: str, name: str) -> Entry:
        """Apply DeclareTable; the caller sets the location of a new entry."""
        entry = self.tables(namespace).get(name)
        if entry and not (self.declare_again and entry.ids is None):
            raise TableAlreadyExistsError(name)
        return self.namespaces[namespace].setdefault(name, Entry())

    def create(self, namespace: str, name: str, mode: str, ids: Ids) -> Entry:
        """Apply CreateTable; the caller sets the location."""
        entry = self.tables(namespace).get(name)
        if entry is None:
            entry = self.namespaces[namespace][name] = Entry(ids=ids)
        elif mode == "Overwrite" or (entry.ids is None and self.create_completes):
            entry.ids = ids
        elif mode == "Create":
            raise TableAlreadyExistsError(name)
        return entry

    def register(self, namespace: str, name: str, mode: str, location: str, ids: Ids) -> Entry:
        """Apply RegisterTable."""
        entry = self.tables(namespace).get(name)
        if entry:
            if mode == "Create":
                raise TableAlreadyExistsError(name)
            self._keep(entry)
        entry = self.namespaces[namespace][name] = Entry(location, ids)
        return entry

    def deregister(self, namespace: str, name: str) -> Entry:
        """Apply DeregisterTable."""
        entry = self.drop(namespace, name)
        self._keep(entry)
        return entry

    def drop(self, namespace: str, name: str) -> Entry:
        """Apply DropTable."""
        self.table(namespace, name)
        return self.namespaces[namespace].pop(name)

    def rename(self, namespace: str, name: str, new_namespace: str, new_name: str) -> Entry:
        """Apply RenameTable."""
        entry = self.table(namespace, name)
        if new_name in self.tables(new_namespace):
            raise TableAlreadyExistsError(new_name)
        self.namespaces[new_namespace][new_name] = self.namespaces[namespace].pop(name)
        return entry

    def _keep(self, entry: Entry) -> None:
        if entry.ids is not None:
            self.kept[entry.location] = entry.ids


# -- machine ---------------------------------------------------------------------------------------


_PLAIN = (Phase.explicit, Phase.generate)
_SHRINKING = (*_PLAIN, Phase.shrink)

NAMESPACES = st.sampled_from([0, 0, 0, 0, 1, 1, 2])
"""Which of three namespaces; only the first exists at the beginning."""
TABLES = st.sampled_from(["a", "b", "c", "d"])
CREATE_MODES = st.sampled_from(["Create", "ExistOk", "Overwrite"])
COUNTS = st.integers(0, 5)

_IN_A_MISSING_NAMESPACE = (
    "test_operations_on_a_table_of_a_missing_namespace_are_namespace_not_found"
)
_WITHOUT_ROWS = "test_create_table_from_a_stream_without_rows_makes_an_empty_table"
_COMPLETES_DECLARED = "test_create_table_in_other_modes_completes_a_declared_table"
_REGISTER_OVERWRITE = "test_register_overwrite_replaces_the_entry_and_keeps_both_data"
_NAMESPACE_CASES = {
    "ExistOk": "test_create_exist_ok_keeps_the_existing_namespace",
    "Overwrite": "test_create_overwrite_replaces_an_empty_namespace",
    "Skip": "test_drop_skip_of_a_missing_namespace_succeeds",
}
"""Mode of a change of a namespace to its case: a target that deviates there skips it here."""


def _outcome(call: Callable[[], Any]) -> tuple[ErrorCode | None, Any]:
    """Return the code of the Lance error, or None and the result."""
    try:
        return None, call()
    except LanceNamespaceError as error:
        return ErrorCode(error.code), str(error)


class CatalogMachine(RuleBasedStateMachine):
    """Drives a catalog and the model side by side. ``target`` is set by :func:`machine_for`."""

    target: Target

    @initialize(counts=st.lists(st.integers(-1, 5), min_size=3, max_size=3))
    def begin(self, counts: list[int]) -> None:
        """Begin with three tables, so that a sequence need not create its first ones."""
        self.ns = Namespace(self.target)
        self.features = self.target.features
        self.model = Model(self.features.declare_again, self.features.create_completes)
        self.model.namespaces[self.ns.name] = {}
        more = [self.ns.track(self.ns.missing_namespace()) for _ in range(2)]
        self.ids = [self.ns.id, *more]
        self.datasets = 0
        self.checks = 0
        for name, count in zip("abc", counts, strict=True):
            if count < 0:
                self.declare(which=0, name=name)
            else:
                self.create(which=0, name=name, mode="Create", count=max(count, 1))

    def teardown(self) -> None:
        if not hasattr(self, "ns"):
            return
        try:
            for which, _ in enumerate(self.ids):
                self._check_listing(which)
            self._check_data()
        finally:
            self.ns.close()

    @precondition(lambda self: self.features.namespace_changes)
    @rule(which=NAMESPACES, mode=CREATE_MODES)
    def create_namespace(self, which: int, mode: str) -> None:
        self._compare(
            lambda: self.ns.create_namespace(self.ids[which], mode=mode),
            lambda: self.model.create_namespace(self._name(which), mode),
            unless=_NAMESPACE_CASES.get(mode, ""),
        )

    @precondition(lambda self: self.features.namespace_changes)
    @rule(
        which=NAMESPACES,
        mode=st.sampled_from(["Fail", "Skip"]),
        behavior=st.sampled_from(["Restrict", "Restrict", "Cascade"]),
    )
    def drop_namespace(self, which: int, mode: str, behavior: str) -> None:
        if behavior == "Cascade" and not self.features.cascade:
            return
        self._compare(
            lambda: self.ns.drop_namespace(self.ids[which], mode=mode, behavior=behavior),
            lambda: self.model.drop_namespace(self._name(which), mode, behavior),
            unless=_NAMESPACE_CASES.get(mode, ""),
        )

    @rule(which=NAMESPACES)
    def namespace_exists(self, which: int) -> None:
        self._compare(
            lambda: self.ns.namespace_exists(self.ids[which]),
            lambda: self.model.tables(self._name(which)) and None,
        )

    @rule(which=NAMESPACES, name=TABLES)
    def declare(self, which: int, name: str) -> None:
        answers = self._compare(
            lambda: self.ns.declare_table(self._id(which, name)).location,
            lambda: self.model.declare(self._name(which), name),
            unless=self._if_missing(which, "declare_table"),
        )
        self._check_location(answers)

    @rule(which=NAMESPACES, name=TABLES, mode=CREATE_MODES, count=COUNTS)
    def create(self, which: int, name: str, mode: str, count: int) -> None:
        if count == 0 and self.target.deviates(_WITHOUT_ROWS):
            return
        if mode == "ExistOk" and self.target.deviates(_COMPLETES_DECLARED):
            return
        ids = list(range(count))
        answers = self._compare(
            lambda: self.ns.create_table(self._id(which, name), rows(ids), mode=mode).location,
            lambda: self.model.create(self._name(which), name, mode, ids),
            unless=self._if_missing(which, "create_table"),
        )
        self._check_location(answers, moved=mode == "Overwrite")

    @precondition(lambda self: self.features.register)
    @rule(
        which=NAMESPACES, name=TABLES, mode=st.sampled_from(["Create", "Overwrite"]), count=COUNTS
    )
    def register(self, which: int, name: str, mode: str, count: int) -> None:
        if mode == "Overwrite" and (
            not self.features.alter or self.target.deviates(_REGISTER_OVERWRITE)
        ):
            return
        self.datasets += 1
        ids, place = list(range(count)), self.ns.dataset(f"d{self.datasets}", range(count))
        location = self.target.register_location(place)
        self.model.kept[place] = ids
        answers = self._compare(
            lambda: self.ns.register_table(self._id(which, name), location, mode=mode),
            lambda: self.model.register(self._name(which), name, mode, place, ids),
            unless=self._if_missing(which, "register_table"),
        )
        if answers is not None:
            del self.model.kept[place]

    @precondition(lambda self: self.features.rename)
    @rule(which=NAMESPACES, name=TABLES, to=NAMESPACES, new_name=TABLES)
    def rename(self, which: int, name: str, to: int, new_name: str) -> None:
        if (which != to and not self.features.rename_across) or (which, name) == (to, new_name):
            return
        self._compare(
            lambda: self.ns.rename_table(
                self._id(which, name), new_name, new_namespace_id=self.ids[to]
            ),
            lambda: self.model.rename(self._name(which), name, self._name(to), new_name),
        )

    @rule(which=NAMESPACES, name=TABLES)
    def deregister(self, which: int, name: str) -> None:
        self._compare(
            lambda: self.ns.deregister_table(self._id(which, name)),
            lambda: self.model.deregister(self._name(which), name),
            unless=self._if_missing(which, "deregister_table"),
        )

    @rule(which=NAMESPACES, name=TABLES)
    def drop(self, which: int, name: str) -> None:
        answers = self._compare(
            lambda: self.ns.drop_table(self._id(which, name)),
            lambda: self.model.drop(self._name(which), name),
            unless=self._if_missing(which, "drop_table"),
        )
        if answers is not None:
            files = self.ns.storage.files(answers[1].location)
            assert not files, f"a drop left {sorted(files)}"

    @rule(which=NAMESPACES, name=TABLES, shout=st.booleans())
    def describe(self, which: int, name: str, shout: bool) -> None:
        asked = name.upper() if self.features.folds_case and shout else name
        answers = self._compare(
            lambda: self.ns.describe_table(self._id(which, asked), check_declared=True),
            lambda: self.model.table(self._name(which), name),
            unless=self._if_missing(which, "describe_table"),
        )
        if answers is not None:
            answer, entry = answers
            assert same_location(answer.location, entry.location)
            assert answer.is_only_declared == (entry.ids is None)

    @rule(which=NAMESPACES, name=TABLES)
    def exists(self, which: int, name: str) -> None:
        self._compare(
            lambda: self.ns.table_exists(self._id(which, name)),
            lambda: self.model.table(self._name(which), name),
            unless=self._if_missing(which, "table_exists"),
        )

    @rule(which=NAMESPACES)
    def count(self, which: int) -> None:
        for name, entry in self.model.namespaces.get(self._name(which), {}).items():
            if entry.ids is not None:
                assert self.ns.count(self._id(which, name)) == len(entry.ids)

    @rule(which=NAMESPACES, limit=st.integers(1, 4), declared=st.booleans())
    def page(self, which: int, limit: int, declared: bool) -> None:
        tables = self.model.namespaces.get(self._name(which))
        if tables is None:
            return
        wanted = sorted(name for name, e in tables.items() if declared or e.ids is not None)
        found = self.ns.all_tables(self.ids[which], limit=limit, include_declared=declared)
        assert found == wanted

    @invariant()
    def a_listing_agrees(self) -> None:
        """Compare one namespace after each step; the end compares all."""
        if hasattr(self, "ns"):
            self.checks += 1
            self._check_listing(self.checks % len(self.ids))

    def _name(self, which: int) -> str:
        return self.ids[which][-1]

    def _id(self, which: int, name: str) -> list[str]:
        return [*self.ids[which], name]

    def _if_missing(self, which: int, operation: str) -> str:
        """Return the case of an operation in a missing namespace; empty if the namespace exists."""
        is_missing = self._name(which) not in self.model.namespaces
        return f"{_IN_A_MISSING_NAMESPACE}[{operation}]" if is_missing else ""

    def _compare(
        self, real: Callable[[], Any], model: Callable[[], Any], unless: str = ""
    ) -> tuple[Any, Any] | None:
        """Require the same code from both; return both results, or None if both refused.

        The step is skipped if the target deviates in the case ``unless``.
        """
        if unless and self.target.deviates(unless):
            return None
        expected, wanted = _outcome(model)
        code, answer = _outcome(real)
        assert code == expected, f"the catalog answered {code!r} ({answer}), not {expected!r}"
        return (answer, wanted) if code is None else None

    def _check_location(self, answers: tuple[Any, Any] | None, moved: bool = False) -> None:
        """Record the location of a new table; an existing table must keep its location."""
        if answers is None:
            return
        location, entry = answers
        assert location
        if entry.location and not moved:
            assert same_location(location, entry.location)
            return
        entry.location = location
        others = [
            other.location
            for tables in self.model.namespaces.values()
            for other in tables.values()
            if other is not entry
        ]
        taken = [*others, *self.model.kept]
        assert not any(same_location(location, place) for place in taken), f"{location} is taken"

    def _check_listing(self, which: int) -> None:
        tables = self.model.namespaces.get(self._name(which))
        if tables is not None:
            limit = (None, 1, 2)[self.checks // len(self.ids) % 3]
            assert self.ns.all_tables(self.ids[which], limit=limit) == sorted(tables)

    def _check_data(self) -> None:
        places: dict[str, Ids] = dict(self.model.kept)
        for tables in self.model.namespaces.values():
            places.update({e.location: e.ids for e in tables.values() if e.ids is not None})
        for location, ids in places.items():
            assert self.ns.storage.ids(location) == ids, f"data at {location}"


def machine_for(tested: Target) -> type[CatalogMachine]:
    """Return a machine that drives one target."""

    # Hypothesis derives the sequences of ``derandomize`` from the text of this class.
    class BoundMachine(CatalogMachine):
        target = tested

    return BoundMachine


class StatefulCases(Cases):
    """The whole catalog, compared with the model."""

    def test_random_sequences_of_operations_agree_with_the_model(self, target: Target) -> None:
        bounds = target.stateful_bounds
        run_state_machine_as_test(
            machine_for(target),
            settings=settings(
                max_examples=bounds.examples,
                stateful_step_count=bounds.steps,
                derandomize=bounds.derandomize,
                deadline=None,
                database=None,
                phases=_SHRINKING if bounds.shrink else _PLAIN,
                suppress_health_check=list(HealthCheck),
            ),
        )

"""What all cases share: a namespace for each, the files of its tables, fixtures, deviations."""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileSession
from lance_namespace import ErrorCode, LanceNamespace

from .calls import PREFIX, Calls, answer_of, code_of, rows, unique_name
from .target import Neighbour, Target

_T = TypeVar("_T")

# -- files of a table ------------------------------------------------------------------------------


def local_path(location: str) -> Path | None:
    """Return the path of a location on local disk (a path or a ``file:`` URI), else None."""
    parts = urlsplit(location)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return Path(location) if not parts.scheme else None


def same_location(one: str | None, other: str | None) -> bool:
    """Return whether two spellings refer to the same location, or both are missing."""
    return _normal(one or "") == _normal(other or "")


def _normal(location: str) -> str:
    path = local_path(location)
    text = str(path) if path is not None else location.replace("s3a://", "s3://", 1)
    return text.rstrip("/")


class Storage:
    """Reads and writes files with the storage options that the target declares."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)

    def files(self, location: str) -> frozenset[str]:
        """Return the names of all files under a location, relative to it."""
        path = local_path(location)
        if path is None:
            return frozenset(self._session(location).list())
        return frozenset(str(f.relative_to(path)) for f in path.rglob("*") if f.is_file())

    def write(self, location: str, table: pa.Table, *, mode: str = "create") -> None:
        """Write a Lance dataset."""
        lance.write_dataset(table, location, mode=mode, storage_options=self.options)

    def ids(self, location: str) -> list[int]:
        """Return the sorted ids in the Lance dataset at a location."""
        dataset = lance.dataset(location, storage_options=self.options)
        return sorted(dataset.to_table(columns=["id"])["id"].to_pylist())

    def put(self, location: str, name: str, content: bytes) -> None:
        """Write one file."""
        path = local_path(location)
        if path is not None:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)
            return
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            self._session(location).upload_file(file.name, name)

    def get(self, location: str, name: str) -> bytes:
        """Read one file."""
        with tempfile.NamedTemporaryFile() as file:
            self._session(location).download_file(name, file.name)
            return Path(file.name).read_bytes()

    def delete(self, location: str, name: str) -> None:
        """Delete one file, which must exist."""
        self._session(location).delete_file(name)

    def _session(self, location: str) -> LanceFileSession:
        return LanceFileSession(str(local_path(location) or location), self.options)

    def remove(self, location: str) -> None:
        """Delete everything under a location, if anything exists."""
        path = local_path(location)
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)
            return
        session = self._session(location)
        for name in session.list():
            session.delete_file(name)

    def remove_empty_parents(self, location: str, name_part: str) -> None:
        """Delete the local directories around a location whose names contain ``name_part``.

        A directory that is not empty stays, and so do its parents.
        """
        path = local_path(location)
        for parent in path.parents if path is not None else ():
            if name_part not in parent.name:
                return
            try:
                parent.rmdir()
            except OSError:  # it is not empty, or was never made
                return


# -- namespace of a case ---------------------------------------------------------------------------


_FEATURE_OF = {
    "register_table": "register",
    "rename_table": "rename",
    "create_namespace": "namespace_changes",
    "drop_namespace": "namespace_changes",
    "list_all_tables": "list_all",
}
"""Operation to the feature that it needs to succeed."""


def why_absent(target: Target, operation: str) -> str:
    """Return why the target lacks an operation; empty if it has it."""
    feature = _FEATURE_OF.get(operation)
    return target.lacks(operation) or (target.lacks(feature) if feature else "")


class Refusals:
    """Checks the results of many requests of one case, each of which must be refused.

    A request that the target declares as a deviation, ``test_case[name]``, must fail that check.
    """

    target: Target
    case = ""
    """The name of the running case."""

    def refuse(
        self,
        calls: Mapping[str, Callable[[_T], object]],
        candidates: Collection[_T],
        *codes: ErrorCode,
        naming: str = "",
    ) -> None:
        """Require that every operation refuses every candidate.

        Args:
            calls: Operation to its call with a candidate. Operations that the target declares
                absent are skipped.
            candidates: Identifiers, or values of an option; at least one.
            codes: The expected codes.
            naming: What each message must contain, in any letter case.
        """
        complaints = {}
        for name, call in calls.items():
            if not why_absent(self.target, name):
                answers = (answer_of(call, each, codes, naming) for each in candidates)
                complaints[name] = next((text for text in answers if text), "")
        self.compare(complaints)

    def compare(self, complaints: Mapping[str, str]) -> None:
        """Require complaints about exactly the requests that the target declares as deviations.

        A complaint says what is wrong with the result of a request; it is empty if nothing is.
        """
        if not complaints:
            pytest.skip(f"{type(self.target).__name__} declares that each operation is absent")
        declared = {n for n in complaints if f"{self.case}[{n}]" in self.target.deviations}
        wrong = {name: text for name, text in complaints.items() if text and name not in declared}
        assert not wrong, "\n".join(f"{name}: {text}" for name, text in wrong.items())
        repaired = sorted(name for name in declared if not complaints[name])
        assert not repaired, f"declared as deviations, but they pass: {repaired}"


class Namespace(Calls, Refusals):
    """A client, a namespace (``id``) that only this case uses, and the files (``storage``)."""

    def __init__(self, target: Target, client: LanceNamespace | None = None) -> None:
        """Make the namespace, with a client of another user than the target's, if one is given."""
        super().__init__(target.connect() if client is None else client)
        self.target = target
        self.features = target.features
        self.storage = Storage(target.storage_options)
        self.namespaces: list[list[str]] = []
        self.neighbours: list[Neighbour] = []
        self._entries: list[tuple[list[str], str]] = []
        self._locations: list[str] = []
        with ExitStack() as undo:
            undo.callback(self.close)
            self.id = self.new_namespace()
            undo.pop_all()

    @property
    def name(self) -> str:
        """The last name of the namespace."""
        return self.id[-1]

    def table(self, name: str = "t") -> list[str]:
        """Return the identifier of a table in the namespace."""
        return [*self.id, name]

    def missing_namespace(self) -> list[str]:
        """Return the identifier of a namespace that does not exist."""
        return [*self.target.parent, unique_name()]

    def missing_table(self) -> list[str]:
        """Return the identifier of a table that does not exist, in the namespace."""
        return self.table(unique_name())

    def track(self, namespace_id: list[str]) -> list[str]:
        """Clean up this namespace too, if it exists at the end."""
        self.namespaces.append(namespace_id)
        return namespace_id

    def new_namespace(self) -> list[str]:
        """Make another namespace."""
        namespace_id = self.track(self.missing_namespace())
        if self.features.namespace_changes:
            self.create_namespace(namespace_id)
        else:
            self.target.make_namespace(namespace_id)
        return namespace_id

    # -- tables and data -------------------------------------------------------------------------

    def with_rows(self, name: str = "t", ids: range = range(3)) -> list[str]:
        """Make a table with these ids by CreateTable, and return its identifier."""
        self.create_table(self.table(name), rows(ids))
        return self.table(name)

    def new_location(self, name: str) -> str:
        """Return a new location under the target's data root, without files."""
        location = f"{self.target.data_root.rstrip('/')}/{self.name}_{name}.lance"
        self._locations.append(location)
        return location

    def dataset(self, name: str, ids: range = range(3)) -> str:
        """Write a Lance dataset to a new location, without the catalog; return the location."""
        location = self.new_location(name)
        self.storage.write(location, rows(ids))
        return location

    def register(self, name: str, location: str, **options: Any) -> list[str]:
        """Register a table at a location under the target's data root; return its identifier."""
        self.register_table(self.table(name), self.target.register_location(location), **options)
        return self.table(name)

    def location(self, table_id: list[str]) -> str:
        """Return a table's location, as the catalog describes it."""
        location = self.describe_table(table_id).location
        assert location, f"describe_table gave no location for {table_id}"
        return location

    def properties(self, table_id: list[str]) -> dict[str, str]:
        """Return a table's properties."""
        return self.describe_table(table_id).properties or {}

    def ids(self, table_id: list[str]) -> list[int]:
        """Return the sorted ids in a table, read from its location."""
        return self.storage.ids(self.location(table_id))

    def write(self, content: object, mode: str = "append") -> None:
        """Write to the table ``t`` through pylance, which opens it by the namespace."""
        dataset = lance.write_dataset(
            content, namespace_client=self.client, table_id=self.table(), mode=mode
        )
        self.locations.add(dataset.uri)

    def read(self, version: int | None = None) -> list[int]:
        """Return the sorted ids in the table ``t``, read through pylance."""
        dataset = lance.dataset(
            namespace_client=self.client, table_id=self.table(), version=version
        )
        return sorted(dataset.to_table()["id"].to_pylist())

    def names(self) -> list[str]:
        """Return the names of the tables in the namespace."""
        return self.all_tables(self.id)

    # -- entries of other implementations --------------------------------------------------------

    def foreign(self, name: str = "foreign") -> list[str]:
        """Make an entry that is not Lance's; return its identifier."""
        location = self.new_location(name)
        self.storage.put(location, "part-0.parquet", b"not Lance")
        self._entries.append((self.id, name))
        self.target.make_foreign_table(self.id, name, location)
        return self.table(name)

    def other_entry(self, name: str, location: str, entry_type: str) -> None:
        """Make an entry of one of the target's types."""
        self._entries.append((self.id, name))
        self.target.make_entry(self.id, name, location, entry_type)

    def inhabit(self) -> Namespace:
        """Fill the namespace with `neighbours`; return it."""
        self.neighbours.extend(self.target.inhabit(self.id, self.new_location("inhabited")))
        self._entries += [(self.id, each.name) for each in self.neighbours]
        return self

    # -- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Remove what the case made, as far as the client can, and close the client."""
        for namespace_id, name in self._entries:
            self.target.remove_entry(namespace_id, name)
        for namespace_id in reversed(self.namespaces):
            self._remove(namespace_id)
        for location in [*self._locations, *self.locations]:
            # The prefix guards against a response with a location that is not the kit's.
            if PREFIX in location:
                self.storage.remove(location)
                self.storage.remove_empty_parents(location, PREFIX)
        super().close()

    def _remove(self, namespace_id: list[str]) -> None:
        """Remove a namespace and its entries. Their files are removed by location: see close()."""
        tables: list[str] = []
        if not _try(lambda: tables.extend(self.all_tables(namespace_id))):
            return
        for name in tables:
            table_id = [*namespace_id, name]
            if not _try(self.deregister_table, table_id):
                _try(self.drop_table, table_id)
        if not self.features.namespace_changes:
            self.target.remove_namespace(namespace_id)
        elif not _try(self.drop_namespace, namespace_id) and self.features.cascade:
            _try(lambda: self.drop_namespace(namespace_id, behavior="Cascade"))


def _try(call: Callable[..., object], *arguments: object) -> bool:
    """Return whether the call succeeded: a failed case may leave anything behind."""
    return code_of(call, *arguments) is None


# -- base of every group of cases ------------------------------------------------------------------


_NEEDS = "lance_bridge_needs"
_Test = TypeVar("_Test", bound=Callable[..., Any])


def needs(*names: str) -> Callable[[_Test], _Test]:
    """Skip a case, with the reason, if the target lacks a feature, an operation or a method.

    Of a class of cases, these are needs of each of them.
    """

    def mark(test: _Test) -> _Test:
        cases = vars(test).items() if isinstance(test, type) else [("test_", test)]
        for case in (case for name, case in cases if name.startswith("test_")):
            setattr(case, _NEEDS, (*names, *getattr(case, _NEEDS, ())))
        return test

    return mark


def _full_name(case: pytest.Function) -> str:
    """Return a case's name with its own parameters, and without those of the target's fixture."""
    own: list[str] = []
    for mark in case.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        own += [str(case.callspec.params[name.strip()]) for name in names]
    return f"{case.originalname}[{'-'.join(own)}]" if own else case.originalname


class Cases:
    """Base of every group. A test module supplies the ``target`` fixture."""

    @pytest.fixture(autouse=True)
    def _declared(self, request: pytest.FixtureRequest, target: Target) -> None:
        """Skip cases of absent operations; expect cases that are declared as deviations to fail."""
        for need in getattr(request.function, _NEEDS, ()):
            reason = target.lacks(need)
            if reason:
                pytest.skip(reason)
        name, full = request.node.originalname, _full_name(request.node)
        reason = target.deviations.get(full) or target.deviations.get(name, "")
        if reason:
            request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _frozen(cls) -> Iterator[None]:
        """Keep collections of garbage, a sixth of the time, from all that is imported."""
        gc.collect()
        gc.freeze()
        yield
        gc.unfreeze()

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def inhabited(cls, target: Target) -> Iterator[Namespace | None]:
        """A namespace of other tools' entries, if the target has some: the cases run beside it."""
        if target.lacks("inhabit"):
            yield None
            return
        with closing(Namespace(target).inhabit()) as inhabited:
            yield inhabited

    @pytest.fixture
    def ns(
        self, request: pytest.FixtureRequest, target: Target, _declared: None
    ) -> Iterator[Namespace]:
        """A client and a namespace that only this case uses."""
        with closing(Namespace(target)) as ns:
            ns.case = request.node.originalname
            yield ns

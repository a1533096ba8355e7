"""What kinds have in common that write the rows of a new table: its steps, and taking it back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import lance
import pyarrow as pa
from lance_namespace.errors import InvalidTableStateError, TableAlreadyExistsError
from pydantic import Field

from lance_bridge.bridge import Bridge
from lance_bridge.catalog import TableRecord
from lance_bridge.entries.tables import load_lance
from lance_bridge.errors import display, table_already_exists
from lance_bridge.lance_datasets import transaction_at
from lance_bridge.lance_errors import translate_lance_errors
from lance_bridge.managed import conversion
from lance_bridge.managed.state import state_of as managed_state
from lance_bridge.ref import Ref
from lance_bridge.table import Table
from lance_bridge.tables import index_types
from lance_bridge.tables.create import FIRST_VERSION, write_first
from lance_bridge.tables.data import Rows
from lance_bridge.tables.history.references import branches_of
from lance_bridge.tables.indices import described
from lance_bridge.tables.spark_types import columns_of
from lance_bridge_spark.jobs.indexing import build_index, index_request

from .. import targets
from ..kind import Options, Step
from ..plan import Facts, Item, Problem, blocker, warning
from ..spark.session import become_active, told_by_spark
from ..spark.writing import Loaded, address_at, append, transaction_of
from ..targets import AnyWork
from .catalogs import target_bridge
from .lineage import origin
from .placing import own_entry, place_of

_log = logging.getLogger(__name__)

LOAD = "load"
"""The step that writes the rows, and the name of its transaction."""

SchemaOf = Callable[[AnyWork], pa.Schema]
FrameOf = Callable[[AnyWork], Any]


class IndexOptions(Options):
    """An index to be built on each table that has the column.

    Attributes:
        kind: As for `lance_bridge_spark.create_index`; parameters alike.
        name: ``<column>_idx`` unless told.
    """

    column: str
    kind: str
    name: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)

    @property
    def index_name(self) -> str:
        return self.name or f"{self.column}_idx"


def on_columns(indices: Sequence[IndexOptions], columns: Sequence[str]) -> list[IndexOptions]:
    """Return indices with the names of their columns in the letter case that a table has."""
    cases = {name.lower(): name for name in columns}
    return [
        each.model_copy(update={"column": cases.get(each.column.lower(), each.column)})
        for each in indices
    ]


def index_problems(indices: Sequence[IndexOptions], schema: pa.Schema) -> list[Problem]:
    """Return what is wrong with indices for a table of these columns."""
    found: list[Problem] = []
    for each in indices:
        if each.column not in schema.names:
            found.append(warning(f"There is no column for an index of {each.kind}", each.column))
            continue
        field = schema.field(each.column)
        kind = index_types.parse(each.kind)
        index_request(each.column, each.kind, each.name, each.parameters)
        if not kind.fits(field):
            found.append(blocker(f"{kind.name} is for {kind.needs}, and not for {field.type}",
                                 each.column))  # fmt: skip
    return found


def steps(
    schema_of: SchemaOf, frame_of: FrameOf, indices: Sequence[IndexOptions]
) -> list[Step[Any, Any, Any]]:
    """Return the steps of a table that is made out of a DataFrame.

    Args:
        schema_of: Returns the schema of the table to be.
        frame_of: Returns the rows, in the order that they are to be written in.
    """
    entry = Step("entry", partial(_enter, schema_of), _take_back, _check_take_back)
    load = Step(LOAD, partial(_load, schema_of, frame_of))
    built = [Step(f"index {each.index_name}", partial(_index, each)) for each in indices]
    return [entry, load, *built]


# -- the entry -------------------------------------------------------------------------------------


def _enter(schema_of: SchemaOf, work: AnyWork) -> Facts:
    bridge = target_bridge(work)
    place = place_of(bridge, work)
    work.note(location=place)
    record = targets.claim(
        bridge,
        work,
        place,
        work.item.facts["properties"],
        declared=True,
        columns=columns_of(schema_of(work)),
    )
    if work.item.facts.get("managed"):
        record = conversion.begin(bridge, record)
    return {"after": targets.state_of(record), "location": record.location}


# -- the rows --------------------------------------------------------------------------------------


def _load(schema_of: SchemaOf, frame_of: FrameOf, work: AnyWork) -> Facts:
    bridge = target_bridge(work)
    record = own_entry(bridge, work)
    _begin_data(bridge, record, schema_of(work), work)
    removed = _delete_orphans(bridge, record, work)
    become_active(work.ends.source)
    loaded = append(
        frame_of(work),
        address_at(work.ends.target, work.item.target),
        version=FIRST_VERSION,
        transaction=transaction_of(work.mark, LOAD),
        mark=work.mark,
        options={**writing_options(work.options), **_own_writing_options(work)},
        alone=True,
    )
    facts = written_facts(bridge, record, loaded)
    work.advance(rows=loaded.rows, size=facts["bytes_written"])
    facts |= _orphans_left(bridge, record)
    return {**facts, "orphaned_bytes_deleted": removed} if removed else facts


def _orphans_left(bridge: Bridge, record: TableRecord) -> Facts:
    """Return how many files of data no version names, and their bytes; nothing where there is none.

    They are of tasks that failed and were repeated. They stay: the table can be seen by now, and
    another writer's files look the same before its commit.
    """
    dataset = Table(bridge, load_lance(bridge, record.path)).open()
    named = {f"data/{file.path}" for each in dataset.get_fragments() for file in each.data_files()}
    found = bridge.storage(record).sizes(record.location or "", "data")
    left = {name: size for name, size in found.items() if name not in named}
    if not left:
        return {}
    return {"orphaned_files_left": len(left), "orphaned_bytes_left": sum(left.values())}


def _delete_orphans(bridge: Bridge, record: TableRecord, work: AnyWork) -> int:
    """Delete what attempts that were interrupted have written; return its bytes.

    The journal says that there was an attempt. As long as the table, which is this migration's own,
    has no version but the first, without rows, all files of data in it are of such attempts. Where
    the catalog holds the versions, the last commit of one may be on its way: its files stay.
    """
    if not work.is_repeated or managed_state(record) is not None:
        return 0
    dataset = Table(bridge, record).open(write=True)
    if int(dataset.version) != FIRST_VERSION or branches_of(dataset):
        return 0
    with translate_lance_errors(
        f"The files of interrupted loads of '{display(record.path)}' remain"
    ):
        stats = dataset.cleanup_old_versions(
            older_than=timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False
        )
    if stats.bytes_removed:
        _log.warning(
            "%s: %s bytes that interrupted loads had left were deleted",
            display(record.path),
            f"{stats.bytes_removed:,}",
        )
    return int(stats.bytes_removed)


def writing_options(options: Any) -> Mapping[str, Any]:
    """Return those of a kind's options that the writer takes."""
    return {
        "data_storage_version": options.data_storage_version,
        "max_rows_per_file": options.max_rows_per_file,
    }


def _own_writing_options(work: AnyWork) -> Mapping[str, Any]:
    """Return those that the plan has for the table alone."""
    most = work.item.facts.get("max_rows_per_file")
    return {} if most is None else {"max_rows_per_file": most}


def written_facts(bridge: Bridge, record: TableRecord, loaded: Loaded) -> Facts:
    """Return what a report tells of a write."""
    # The entry itself may say which version is the latest.
    dataset = Table(bridge, load_lance(bridge, record.path)).open(Ref(version=loaded.version))
    size = bytes_of(dataset)
    return {
        "version": loaded.version,
        "rows_written": loaded.rows,
        "bytes_written": size,
        "bytes_after": size,
    }


def bytes_of(dataset: lance.LanceDataset) -> int:
    """Return the bytes of a version's data files, as far as its manifest knows them."""
    files = [file for each in dataset.get_fragments() for file in each.metadata.files]
    return sum(int(file.file_size_bytes or 0) for file in files)


def _begin_data(bridge: Bridge, record: TableRecord, schema: pa.Schema, work: AnyWork) -> None:
    """Make version 1, empty; or find the one that an earlier run made."""
    if Table(bridge, record).is_declared():
        try:
            write_first(Table(bridge, record), Rows.of(schema.empty_table()))
        except TableAlreadyExistsError:
            if not work.is_repeated:
                raise
        else:
            return
    first = Table(bridge, record).open(Ref(version=FIRST_VERSION))
    is_ours = first.count_rows() == 0 and first.schema.equals(schema)
    if not (work.is_repeated and is_ours):
        raise table_already_exists(record.path, "somebody else has written to it")


# -- indices ---------------------------------------------------------------------------------------


def _index(index: IndexOptions, work: AnyWork) -> Facts:
    bridge = target_bridge(work)
    record = own_entry(bridge, work)
    dataset = Table(bridge, record).open()
    with translate_lance_errors(f"The indices of '{display(record.path)}' could not be read"):
        there = {each.name for each in described(dataset)}
    if index.index_name in there or index.column not in dataset.schema.names:
        return {}
    if not dataset.count_rows():
        return {f"index {index.index_name}": "not built: there are no rows"}
    become_active(work.ends.source)
    request = index_request(index.column, index.kind, index.index_name, index.parameters)
    address = address_at(work.ends.target, work.item.target)
    with told_by_spark(f"No index was built on column '{index.column}'"):
        built = build_index(work.ends.source, address, request)
    return {f"index {index.index_name}": {"version": built.version, "kind": built.kind}}


# -- taking it back --------------------------------------------------------------------------------


def _check_take_back(work: AnyWork) -> None:
    bridge = target_bridge(work)
    targets.require_unchanged(bridge, work, work.facts.get("after", {}))
    record = targets.own(bridge, work)
    if record is not None:
        require_own_rows(bridge, work, record)


def require_own_rows(bridge: Bridge, work: AnyWork, record: TableRecord) -> None:
    """Check that nobody but this migration has written rows to a table.

    Raises:
        InvalidTableStateError: (19)
    """
    if Table(bridge, record).is_declared():
        return
    dataset = Table(bridge, record).open()
    version = origin(dataset, FIRST_VERSION)
    branches = sorted(branches_of(dataset))
    if branches:
        who = f"branch {', '.join(branches)} is not its"
    elif version is None:
        who = "its versions were cleaned up"
    elif not _is_own(dataset, version, transaction_of(work.mark, LOAD)):
        who = f"version {version} is not its"
    else:
        return
    raise InvalidTableStateError(
        f"The rows of '{display(record.path)}' are not known to be those of migration "
        f"{work.plan.id} ({who}): somebody else has written to the table, which undoing would "
        "delete. Leave it alone, or drop it"
    )


def _is_own(dataset: lance.LanceDataset, version: int, transaction: str) -> bool:
    with translate_lance_errors(f"Version {version} of {dataset.uri} could not be read"):
        if version == FIRST_VERSION:
            return not dataset.count_rows()
        made_by = transaction_at(dataset, version)
    return made_by is not None and bool(made_by.uuid == transaction)


def _take_back(work: AnyWork) -> None:
    bridge = target_bridge(work)
    check = partial(require_own_rows, bridge, work)
    targets.take_back(bridge, work, work.facts.get("after", {}), check_files=check)


def item_indices(item: Item) -> list[IndexOptions]:
    """Return the indices that an item's plan has."""
    return [IndexOptions.model_validate(each) for each in item.facts.get("indices", ())]

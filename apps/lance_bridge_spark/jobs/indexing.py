"""Building an index in parallel: train a model if needed, build segments, and commit once."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from lance.indices import IndicesBuilder
from lance.lance import indices as native
from lance_namespace import CreateTableIndexRequest
from lance_namespace.errors import TableIndexAlreadyExistsError
from pydantic import ValidationError

from lance_bridge.dataset import (
    Column,
    IndexType,
    default_index_name,
    describe_indices,
    find_column,
    index_options,
    parse_index_type,
    stored_type,
)
from lance_bridge.errors import invalid, translate_lance_errors

from ..addresses import Access, TableAddress, address_of
from ..lookup import find_table
from .tasks import commit, phases, run

if TYPE_CHECKING:
    from ..spark_tables import SparkTable

_FULL_TEXT = "FTS"
_SYSTEM = "__lance"


@dataclass(frozen=True)
class Indexed:
    """The result of an index build. ``rows`` is the number of rows when the build began."""

    version: int
    name: str
    kind: str
    rows: int
    segments: int
    tasks: int


@dataclass(frozen=True)
class _Plan:
    """The checked arguments of an index build."""

    table: SparkTable
    dataset: lance.LanceDataset
    column: Column
    kind: IndexType
    name: str
    options: dict[str, Any]
    removed: tuple[Any, ...]


def create_index(
    spark: Any,
    table: str,
    column: str,
    kind: str = "IVF_PQ",
    *,
    name: str | None = None,
    metric: str | None = None,
    replace: bool = False,
    rows_per_task: int = 1_000_000,
    merge: bool = True,
    **parameters: Any,
) -> Indexed:
    """Build an index on executors, each over some fragments, and commit it once.

    An index on vectors is trained on a sample by one task; all others use that model, so that
    their parts can be merged into one.

    Args:
        table: ``catalog.db.table``, or a location.
        column: Its path.
        kind: IVF_PQ, IVF_FLAT, IVF_SQ, IVF_RQ, IVF_HNSW_FLAT, IVF_HNSW_SQ, IVF_HNSW_PQ, BTREE,
            BITMAP, LABEL_LIST, INVERTED, NGRAM, ZONEMAP, BLOOMFILTER, RTREE or MINHASHLSH.
        name: ``<column>_idx`` by default.
        metric: ``l2``, ``cosine``, ``dot`` or ``hamming``; for vectors only, ``l2`` by default.
        replace: Whether to replace an index of that name, which is used until the commit.
        rows_per_task: The approximate number of rows in a task, which bounds its memory.
        merge: Whether one task merges the parts. Without a merge the build is faster, and each
            search reads all parts. Parts with their own models are never merged: those of IVF_SQ
            and IVF_HNSW_SQ, of ``hamming``, of lists of vectors, and of IVF_PQ and IVF_HNSW_PQ
            with ``dot``.
        parameters: Those of CreateTableIndex, such as ``num_partitions`` or ``base_tokenizer``.

    Raises:
        TableIndexAlreadyExistsError: (7)
        TableColumnNotFoundError: (12)
        InvalidInputError: (13) a kind or parameter is unknown or does not fit.
        ConcurrentModificationError: (14) the fragments were rewritten concurrently, or another
            job built an index of that name.
        ServiceUnavailableError: (17)
    """
    given = dict(parameters) if metric is None else {**parameters, "distance_type": metric}
    return build_index(
        spark,
        address_of(spark, table),
        index_request(column, kind, name, given),
        replace=replace,
        rows_per_task=rows_per_task,
        merge=merge,
    )


def build_index(
    spark: Any,
    address: TableAddress,
    request: CreateTableIndexRequest,
    *,
    replace: bool = False,
    rows_per_task: int = 1_000_000,
    merge: bool = True,
) -> Indexed:
    """Build an index as `create_index` does, on a table of any catalog."""
    table, column = address.name, request.column
    with phases(f"index {table}.{column}", 5) as progress:
        progress.begin("plan")
        plan = _plan(find_table(address), request, replace=replace)
        access = plan.table.access(plan.dataset, write=True)
        groups = group_fragments(plan.dataset, rows_per_task)
        what = f"No index was built on column '{column}' of table '{table}'"
        progress.begin("train")
        model = _train_model(spark, plan, access, groups, what)
        progress.begin(f"build, {len(groups)} tasks")
        segments = run(spark, groups, _build_work(plan, access, model), what)
        progress.begin("merge")
        may_merge = merge and len(segments) > 1 and _can_merge(plan)
        # Segments of a full-text index are only staged files before a merge.
        if may_merge or (segments and plan.kind.name == _FULL_TEXT):
            segments = run(spark, [segments], partial(_merge, access), what)
        progress.begin("commit")
        version = _commit(plan, segments)
    rows = plan.dataset.count_rows()
    return Indexed(version, plan.name, plan.kind.name, rows, len(segments), len(groups))


def index_request(
    column: str, kind: str, name: str | None, parameters: dict[str, Any]
) -> CreateTableIndexRequest:
    """Return the namespace's request for an index.

    Raises:
        InvalidInputError: (13) a parameter is unknown, or has the wrong type.
    """
    for each in parameters:
        if each not in CreateTableIndexRequest.model_fields:
            raise invalid(f"{each} is no parameter of an index")
    try:
        return CreateTableIndexRequest(column=column, index_type=kind, name=name, **parameters)
    except ValidationError as error:
        first = error.errors()[0]
        raise invalid(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _plan(table: SparkTable, request: CreateTableIndexRequest, *, replace: bool) -> _Plan:
    wanted = parse_index_type(request.index_type)
    dataset = table.open(write=True)
    at = find_column(dataset, table, request.column)
    field = at.field.to_arrow()
    if not wanted.fits(field):
        raise invalid(f"{wanted.name} is for {wanted.needs}; '{at.path}' is {field.type}")
    options = index_options(request, wanted, field)
    name = default_index_name(at.path) if request.name is None else request.name
    removed = _segments_to_remove(table, dataset, name, replace)
    return _Plan(table, dataset, at, wanted, name, options, removed)


def _segments_to_remove(
    table: SparkTable, dataset: lance.LanceDataset, name: str, replace: bool
) -> tuple[Any, ...]:
    """Return the segments of an existing index with the name.

    Raises:
        TableIndexAlreadyExistsError: (7) it exists, and ``replace`` is false.
        InvalidInputError: (13) the name is invalid.
    """
    if not name or "\0" in name or name.startswith(_SYSTEM):
        raise invalid(f"{name!r} cannot be an index's name")
    with translate_lance_errors(f"The indices of table '{table.address.name}' could not be read"):
        same = [each for each in describe_indices(dataset) if each.name == name]
    if same and not replace:
        raise TableIndexAlreadyExistsError(
            f"Table '{table.name}' already has an index '{name}': pass replace=True, or choose "
            "another name"
        )
    return tuple(segment for each in same for segment in each.segments)


def _train_model(
    spark: Any, plan: _Plan, access: Access, groups: list[tuple[int, ...]], what: str
) -> Model | None:
    """Train the model that tasks share, or return None if each task trains its own."""
    if len(groups) < 2 or not _shares_model(plan):
        return None
    training = Training(access, plan.column.path, plan.kind.name, plan.options)
    return run(spark, [training], Training.train, what)[0]


def _shares_model(plan: _Plan) -> bool:
    """Return whether pylance can train one model for all parts of an index.

    It trains product quantization on the distance to centroids, and with ``dot`` encodes without
    them: such a model finds next to nothing.
    """
    if not plan.kind.is_vector or pa.types.is_list(stored_type(plan.column.field.to_arrow())):
        return False
    metric = plan.options["metric"]
    return metric != "hamming" and not (metric == "dot" and "PQ" in plan.kind.name)


def _merge(access: Access, segments: list[Any]) -> Any:
    return access.open().merge_existing_index_segments(segments)


def _can_merge(plan: _Plan) -> bool:
    """Return whether segments can be merged: they have no model, or share it entirely."""
    if not plan.kind.is_vector:
        return True
    return _shares_model(plan) and not plan.kind.name.endswith("_SQ")


def _build_work(plan: _Plan, access: Access, model: Model | None) -> Callable[..., Any]:
    """Return the function that builds the part of an index that covers some fragments."""
    options = {**plan.options, "name": plan.name, "replace": True}
    if model is not None:
        options.pop("target_partition_size", None)
        options.update(model.arguments())
    return partial(_build, access, plan.column.path, plan.kind.name, options)


def _build(
    access: Access, column: str, kind: str, options: dict[str, Any], fragments: tuple[int, ...]
) -> Any:
    return access.open().create_index_uncommitted(
        column, kind, fragment_ids=list(fragments), **options
    )


def _commit(plan: _Plan, segments: list[Any]) -> int:
    """Commit the segments as the index, replacing an existing index of that name."""
    dataset = plan.dataset
    if not segments:
        raise invalid(f"Table '{plan.table.name}' has no rows to build an index on")
    new = [dataclasses.replace(each, name=plan.name) for each in segments]
    old = [
        dataclasses.replace(new[0], uuid=each.uuid, fragment_ids=set(each.fragment_ids))
        for each in plan.removed
    ]
    transaction = lance.Transaction(
        read_version=int(dataset.version),
        operation=lance.LanceOperation.CreateIndex(new, old),
        uuid=str(uuid.uuid4()),
    )
    what = f"no index was built on column '{plan.column.path}'"
    return commit(plan.table, dataset, transaction, what)


_SAMPLE_RATE = 256
_ITERATIONS = 50
_PARTITION_ROWS = 8192
_LEAST_SAMPLES = 2
_RABIT_BITS = 5
"""Lance's defaults."""


@dataclass(frozen=True)
class Model:
    """The model that all tasks of one index share. Pickles."""

    centroids: pa.FixedSizeListArray
    codebook: pa.FixedSizeListArray | None = None
    rotation: str | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the model as arguments of pylance."""
        given = {
            "ivf_centroids": self.centroids,
            "num_partitions": len(self.centroids),
            "pq_codebook": self.codebook,
            "rabitq_model": self.rotation,
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class Training:
    """What a task needs to train a model on a sample of a table's vectors."""

    access: Access
    column: str
    kind: str
    options: dict[str, Any] = field(default_factory=dict)

    def train(self) -> Model:
        """Train the model; its memory depends on the sample, not on the table."""
        dataset = self.access.open()
        builder, rows = IndicesBuilder(dataset, self.column), dataset.count_rows()
        rate = int(self.options.get("sample_rate", _SAMPLE_RATE))
        iterations = int(self.options.get("max_iters", _ITERATIONS))
        parts = self._partitions(rows)
        ivf = builder.train_ivf(
            parts,
            distance_type=self.options["metric"],
            sample_rate=max(_LEAST_SAMPLES, min(rate, rows // parts)),
            max_iters=iterations,
        )
        if "PQ" in self.kind:
            bits = int(self.options.get("num_bits", 8))
            pq = builder.train_pq(
                ivf,
                self.options["num_sub_vectors"],
                sample_rate=max(_LEAST_SAMPLES, min(rate, rows // 2**bits)),
                max_iters=iterations,
                num_bits=bits,
            )
            return Model(ivf.centroids, pq.codebook)
        if self.kind == "IVF_RQ":
            bits = int(self.options.get("num_bits", _RABIT_BITS))
            return Model(ivf.centroids, None, native.build_rq_model(builder.dimension, bits))
        return Model(ivf.centroids)

    def _partitions(self, rows: int) -> int:
        given = self.options.get("num_partitions")
        if given is not None:
            return int(given)
        size = int(self.options.get("target_partition_size", _PARTITION_ROWS))
        return max(1, rows // size)


def group_fragments(dataset: lance.LanceDataset, rows_per_task: int) -> list[tuple[int, ...]]:
    """Return the ids of all fragments, in order, in groups of about ``rows_per_task`` rows.

    Raises:
        InvalidInputError: (13) ``rows_per_task`` is not positive.
    """
    if rows_per_task < 1:
        raise invalid(f"rows_per_task must be 1 or more, not {rows_per_task}")
    groups: list[tuple[int, ...]] = []
    rows = 0
    for fragment in dataset.get_fragments():
        held = fragment.metadata.physical_rows
        if groups and rows + held <= rows_per_task:
            groups[-1] = (*groups[-1], fragment.fragment_id)
            rows += held
        else:
            groups.append((fragment.fragment_id,))
            rows = held
    return groups

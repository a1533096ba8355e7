"""DELETE, UPDATE and MERGE as functions, with Spark's conditions and expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from lance_namespace.errors import TableColumnNotFoundError, TableSchemaValidationError
from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from lance_bridge.dotted_names import find_name, quoted
from lance_bridge.errors import invalid

from ..schemas import ROW_ADDRESS, ROW_ID
from . import change
from .change import Action, Changed, Kind, Plan
from .read_write import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_KEY_COLUMNS = (ROW_ID, ROW_ADDRESS)


def delete(
    spark: Any, table: str, where: str | Column, *, retries: int = change.RETRIES
) -> Changed:
    """Delete the rows that match a condition. Data files are not rewritten.

    Args:
        spark: The session.
        table: ``catalog.namespace.table``, or a location.
        where: A Spark SQL condition, or a boolean column. Rows for which it is null are kept.
            ``"true"`` deletes all rows.
        retries: How often to retry if another writer changed the same fragments.

    Raises:
        InvalidInputError: (13) no such catalog, a malformed name, no Lance table, or columns whose
            names differ only in letter case.
        TableNotFoundError: (4)
        ConcurrentModificationError: (14) every attempt conflicted with another writer's change.
        OutcomeUnknownError: (17) it is unknown whether the rows are deleted.
        ServiceUnavailableError: (17)
        AnalysisException: Spark cannot parse the condition or resolve a column.
    """

    def attempt() -> Changed:
        target = Snapshot.open(spark, table, write=True)
        target.require_changeable(rewrites=False)
        rows = _select_rows(target, where, ())
        marked = rows.select(*ROW_KEY_COLUMNS, F.lit(0).alias(change.ACTION))
        return change.apply_change(target, Plan(marked, [Action(Kind.DELETE)], ()))

    return change.retry(retries, attempt)


def update(
    spark: Any,
    table: str,
    set: Mapping[str, Any],
    where: str | Column | None = None,
    *,
    retries: int = change.RETRIES,
) -> Changed:
    """Set columns in the rows that match a condition, or in all rows.

    Other columns keep their values, which Spark does not read.

    Args:
        spark: The session.
        table: ``catalog.namespace.table``, or a location.
        set: Spark SQL expressions over the old row, or Spark columns, by column name.
        where: A Spark SQL condition, or a boolean column.
        retries: How often to retry if another writer changed the same fragments.

    Raises:
        InvalidInputError: (13) no such catalog, a malformed name, no Lance table, nothing is
            set, or columns whose names differ only in letter case.
        TableNotFoundError: (4)
        TableColumnNotFoundError: (12) a column to set does not exist.
        TableSchemaValidationError: (20) an expression has a type that its column cannot store.
        ConcurrentModificationError: (14) every attempt conflicted with another writer's change.
        OutcomeUnknownError: (17) it is unknown whether the rows are updated.
        ServiceUnavailableError: (17)
        AnalysisException: Spark cannot parse an expression or resolve a column.
    """

    def attempt() -> Changed:
        target = Snapshot.open(spark, table, write=True)
        target.require_changeable()
        values = columns_to_set(target, set)
        rows = _select_rows(target, where, tuple(values.values()))
        made = cast_values(target, rows, values)
        marked = rows.select(
            *ROW_KEY_COLUMNS, F.lit(0).alias(change.ACTION), *alias_values(list(made.values()))
        )
        action = Action(Kind.UPDATE, frozenset(made))
        return change.apply_change(target, Plan(marked, [action], tuple(made)))

    return change.retry(retries, attempt)


def merge_into(
    source: DataFrame,
    table: str,
    on: str | Sequence[str] | Column,
    *,
    when_matched_update: Any = None,
    when_matched_delete: Any = None,
    when_not_matched_insert: Any = None,
    when_not_matched_by_source: Any = None,
    retries: int = change.RETRIES,
) -> Changed:
    """Update, delete and insert rows of a table from a DataFrame, in one version.

    Expressions and conditions refer to the table's columns as ``target.x`` and to the DataFrame's
    as ``source.x``. Values are compared as in Spark: null matches nothing, NaN equals NaN, and -0.0
    equals 0.0. A matched row is deleted if the delete's condition holds, and otherwise updated if
    the update's condition holds.

    Args:
        source: The rows to merge. It is computed once, and again for each retry.
        table: ``catalog.namespace.table``, or a location.
        on: Names of columns that must be equal, or a Spark SQL condition.
        when_matched_update: ``"*"``, expressions by column, or `Update`.
        when_matched_delete: True, a condition, or `Delete`.
        when_not_matched_insert: ``"*"``, expressions by column, or `Insert`. Columns that are not
            named are null.
        when_not_matched_by_source: For rows of the table that no source row matches: ``"delete"``,
            expressions by column, `Delete`, `Update`, or a list of these two.
        retries: How often to retry if another writer changed the same fragments; if rows can be
            inserted, if another writer changed any existing row.

    Raises:
        InvalidInputError: (13) no such catalog, a malformed name, no Lance table, invalid clauses,
            columns whose names differ only in letter case, or several source rows match one row
            (MERGE_CARDINALITY_VIOLATION).
        TableNotFoundError: (4)
        TableColumnNotFoundError: (12) a column to compare or to set does not exist.
        TableSchemaValidationError: (20) an expression has a type that its column cannot store.
        ConcurrentModificationError: (14) every attempt conflicted with another writer's change.
        OutcomeUnknownError: (17) it is unknown whether the rows are merged.
        ServiceUnavailableError: (17)
        AnalysisException: Spark cannot parse an expression or resolve a column.
    """
    clauses = clauses_of(
        when_matched_update,
        when_matched_delete,
        when_not_matched_insert,
        when_not_matched_by_source,
    )

    def attempt() -> Changed:
        target = Snapshot.open(source.sparkSession, table, write=True)
        target.require_changeable()
        return change.apply_change(target, Merge(target, source, on, clauses).plan())

    return change.retry(retries, attempt)


# -- values and conditions -------------------------------------------------------------------------


def columns_to_set(target: Snapshot, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values to set, by the table's own column names.

    Raises:
        InvalidInputError: (13) nothing is set, or a column is set twice.
        TableColumnNotFoundError: (12)
    """
    if not values:
        raise invalid(f"Nothing is set in table '{target.name}': give a column and an expression")
    found: dict[str, Any] = {}
    for name, value in values.items():
        try:
            column = target.column(name)
        except TableColumnNotFoundError:
            top = name.split(".", 1)[0]
            if top != name and top in target.schema.names:
                raise invalid(
                    f"'{name}' cannot be set alone: set all of '{top}', with named_struct(…)"
                ) from None
            raise
        if column in found:
            raise invalid(f"Column '{column}' is set twice")
        found[column] = value
    return found


def cast_values(target: Snapshot, rows: DataFrame, values: Mapping[str, Any]) -> dict[str, Column]:
    """Return the new values of columns over some rows, cast to the columns' types."""
    if not values:
        return {}
    columns = {name: as_column(value) for name, value in values.items()}
    given = rows.select(*[c.alias(f"v{i}") for i, c in enumerate(columns.values())]).schema
    ansi = str(target.spark.conf.get("spark.sql.ansi.enabled")).lower() == "true"
    return {
        name: assign(column, field.dataType, target.types[name], target.name, ansi=ansi)
        for (name, column), field in zip(columns.items(), given.fields, strict=True)
    }


def alias_values(values: list[Column]) -> list[Column]:
    """Return new values with the aliases that tasks expect."""
    return [value.alias(f"{change.VALUE}{place}") for place, value in enumerate(values)]


def as_column(value: Any) -> Column:
    """Return an SQL expression as a column, and a column unchanged.

    Raises:
        InvalidInputError: (13) it is neither.
    """
    if isinstance(value, str):
        return F.expr(value)
    if not isinstance(value, Column):
        raise invalid(
            f"An expression must be SQL or a Spark column, not {value!r}: write it as text, or "
            "with lit()"
        )
    return value


def _select_rows(
    target: Snapshot, where: str | Column | None, values: tuple[Any, ...]
) -> DataFrame:
    """Return the rows that match a condition, with only the columns that are needed."""
    texts = [each for each in (where, *values) if each is not None]
    if all(isinstance(each, str) for each in texts):
        some = target.scan(target.columns_in(*texts), ROW_KEY_COLUMNS)
        try:
            return _filter(some, where, values)
        except AnalysisException:
            pass  # A column may have been left out: try with all columns.
    return _filter(target.scan(target.schema.names, ROW_KEY_COLUMNS), where, values)


def _filter(rows: DataFrame, where: Any, values: tuple[Any, ...]) -> DataFrame:
    found = rows if where is None else rows.where(as_column(where))
    # Accessing the schema makes Spark analyse the expressions now, in Spark Connect too.
    _ = found.select(*[as_column(value).alias("v") for value in values]).schema
    return found


_TIMES = (spark.DateType, spark.TimestampType, spark.TimestampNTZType)


def assign(
    value: Column, given: spark.DataType, column: spark.StructField, table: str, *, ansi: bool
) -> Column:
    """Return a value cast to the type of its column.

    Args:
        given: The value's own type.
        table: The table's name in messages.
        ansi: Whether the session's casts fail if a value does not fit.

    Raises:
        TableSchemaValidationError: (20) Spark does not allow storing the value in the column.
    """
    if not can_store(given, column.dataType):
        raise TableSchemaValidationError(
            f"Column '{column.name}' of table '{table}' is {column.dataType.simpleString()}, and "
            f"the value for it is {given.simpleString()}: cast it"
        )
    wanted = as_nullable(column.dataType)
    if as_nullable(given) != wanted:
        value = value.cast(wanted) if ansi else _try_cast(value, wanted, column.name)
    if not column.nullable:
        message = f"[NOT_NULL_ASSERT_VIOLATION] Column '{column.name}' must not be null"
        value = F.when(value.isNotNull(), value).otherwise(F.raise_error(message).cast(wanted))
    return value


def _try_cast(value: Column, wanted: spark.DataType, name: str) -> Column:
    cast = value.try_cast(wanted)
    message = f"[CAST_OVERFLOW_IN_TABLE_INSERT] A value does not fit column '{name}'"
    failed = F.raise_error(message).cast(wanted)
    return F.when(value.isNull() | cast.isNotNull(), cast).otherwise(failed)


def can_store(given: spark.DataType, wanted: spark.DataType) -> bool:
    """Return whether Spark's ANSI policy allows storing values of a type as another."""
    if isinstance(given, spark.NullType) or as_nullable(given) == as_nullable(wanted):
        return True
    nested = _nested_pairs(given, wanted)
    if nested is not None:
        return all(can_store(one, other) for one, other in nested)
    if isinstance(wanted, spark.StringType):
        return isinstance(given, spark.AtomicType) and not isinstance(given, spark.BinaryType)
    if isinstance(given, _TIMES) and isinstance(wanted, _TIMES):
        return True
    return isinstance(given, spark.NumericType) and isinstance(wanted, spark.NumericType)


def _nested_pairs(given: Any, wanted: Any) -> list[tuple[Any, Any]] | None:
    """Return pairs of the inner types of two nested types of the same kind, or None."""
    if isinstance(given, spark.ArrayType) and isinstance(wanted, spark.ArrayType):
        return [(given.elementType, wanted.elementType)]
    if isinstance(given, spark.MapType) and isinstance(wanted, spark.MapType):
        return [(given.keyType, wanted.keyType), (given.valueType, wanted.valueType)]
    if isinstance(given, spark.StructType) and isinstance(wanted, spark.StructType):
        # A cast matches fields by position, so the names must be in the same order.
        if [each.lower() for each in given.names] != [each.lower() for each in wanted.names]:
            return None
        pairs = zip(given.fields, wanted.fields, strict=True)
        return [(one.dataType, other.dataType) for one, other in pairs]
    return None


def as_nullable(data_type: Any) -> Any:
    """Return a type that is nullable at every level; nulls are checked on writing."""
    if isinstance(data_type, spark.ArrayType):
        return spark.ArrayType(as_nullable(data_type.elementType), True)
    if isinstance(data_type, spark.MapType):
        return spark.MapType(as_nullable(data_type.keyType), as_nullable(data_type.valueType), True)
    if isinstance(data_type, spark.StructType):
        fields = [
            spark.StructField(f.name, as_nullable(f.dataType), True) for f in data_type.fields
        ]
        return spark.StructType(fields)
    return data_type


# -- clauses of a merge ----------------------------------------------------------------------------

ALL = "*"
"""Set all columns from the source's columns of the same names."""

TARGET = "target"
SOURCE = "source"


@dataclass(frozen=True)
class Update:
    """Set columns if ``where`` holds; ``set`` is ``"*"``, or expressions by column."""

    set: Mapping[str, Any] | str = ALL
    where: str | Column | None = None


@dataclass(frozen=True)
class Insert:
    """Insert a row if ``where`` holds; ``values`` is ``"*"``, or expressions by column."""

    values: Mapping[str, Any] | str = ALL
    where: str | Column | None = None


@dataclass(frozen=True)
class Delete:
    """Delete a row if ``where`` holds."""

    where: str | Column | None = None


SettingT = TypeVar("SettingT", Update, Insert)


@dataclass(frozen=True)
class Clauses:
    """The clauses for matched and unmatched rows; in a pair, the delete is checked first."""

    matched: tuple[Delete | Update, ...] = ()
    inserted: Insert | None = None
    unmatched: tuple[Delete | Update, ...] = ()
    """Rows of the target that no source row matches."""

    @property
    def texts(self) -> list[Any]:
        """All conditions and expressions, except those over the source alone."""
        found: list[Any] = []
        for clause in (*self.matched, *self.unmatched):
            found.append(clause.where)
            if isinstance(clause, Update) and not isinstance(clause.set, str):
                found += clause.set.values()
        return [each for each in found if each is not None]

    @property
    def needs_one_match(self) -> bool:
        """Whether a target row may match only one source row; as in Spark, not if it is deleted."""
        return bool(self.matched) and self.matched != (Delete(),)


def clauses_of(
    matched_update: Any, matched_delete: Any, not_matched_insert: Any, not_matched_by_source: Any
) -> Clauses:
    """Return the clauses in the arguments of `merge_into`.

    Raises:
        InvalidInputError: (13) none is given, one can never be reached, or one is malformed.
    """
    update = _setting(Update, "when_matched_update", matched_update)
    delete = _delete(matched_delete)
    if update is not None and delete is not None and delete.where is None:
        raise invalid(
            "when_matched_delete deletes every match, so that when_matched_update is never "
            "reached: give it a condition"
        )
    matched = tuple(each for each in (delete, update) if each is not None)
    insert = _setting(Insert, "when_not_matched_insert", not_matched_insert)
    unmatched = _unmatched(not_matched_by_source)
    if not (matched or insert or unmatched):
        raise invalid("A merge needs at least one of its clauses")
    return Clauses(matched, insert, unmatched)


def _setting(kind: type[SettingT], name: str, given: Any) -> SettingT | None:
    if given is None or isinstance(given, kind):
        return given
    if given is True or given == ALL:
        return kind()
    if isinstance(given, Mapping):
        return kind(given)
    raise invalid(
        f"{name} must be '*', expressions by column, or {kind.__name__}(…), not {given!r}"
    )


def _delete(given: Any) -> Delete | None:
    if given is None or given is False:
        return None
    if isinstance(given, Delete):
        return given
    if given is True:
        return Delete()
    if isinstance(given, str):
        return Delete(given)
    raise invalid(f"when_matched_delete must be True, a condition or Delete(…), not {given!r}")


def _unmatched(given: Any) -> tuple[Delete | Update, ...]:
    if given is None:
        return ()
    if given == "delete":
        return (Delete(),)
    if isinstance(given, Mapping):
        given = Update(given)
    found = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    for each in found:
        if not isinstance(each, (Delete, Update)) or (
            isinstance(each, Update) and isinstance(each.set, str)
        ):
            raise invalid(
                "when_not_matched_by_source must be 'delete', expressions by column, Delete(…), "
                f"Update(…) or a list of those two, and has no source to take from, not {each!r}"
            )
    return found


@dataclass(frozen=True)
class Branch:
    """A clause with its columns resolved to the table's own names, and the rows it applies to."""

    rows: Column
    where: Any
    action: Action
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def condition(self) -> Column:
        return self.rows if self.where is None else self.rows & as_column(self.where)


def _branch(
    target: Snapshot, rows: Column, clause: Update | Delete | Insert, source: list[str]
) -> Branch:
    """Resolve the columns that a clause sets.

    Args:
        source: The names of the source's columns.

    Raises:
        InvalidInputError: (13) the source lacks columns for ``"*"``, or a column is set twice.
        TableColumnNotFoundError: (12) a column to set does not exist.
    """
    if isinstance(clause, Delete):
        return Branch(rows, clause.where, Action(Kind.DELETE))
    is_insert = isinstance(clause, Insert)
    given = clause.values if isinstance(clause, Insert) else clause.set
    if isinstance(given, str):
        given = _from_source(target, source)
    values = columns_to_set(target, given)
    if is_insert:
        _require_values(target, values)
    action = Action(Kind.INSERT if is_insert else Kind.UPDATE, frozenset(values))
    return Branch(rows, clause.where, action, values)


def _from_source(target: Snapshot, source: list[str]) -> dict[str, Any]:
    folded = {name.lower(): name for name in source}
    if len(folded) < len(source) and not set(target.schema.names) <= set(source):
        raise invalid("'*' is ambiguous: columns of the source differ only in letter case")
    lacking = [name for name in target.schema.names if name.lower() not in folded]
    if lacking:
        raise invalid(
            f"'*' takes every column of table '{target.name}' from the source, which lacks "
            f"{', '.join(lacking)}: give expressions by column"
        )
    names = {name: name if name in source else folded[name.lower()] for name in target.schema.names}
    return {name: quoted((SOURCE, match)) for name, match in names.items()}


def _require_values(target: Snapshot, values: Mapping[str, Any]) -> None:
    missing = [f.name for f in target.schema if not f.nullable and f.name not in values]
    if missing:
        raise invalid(
            f"Rows to insert into table '{target.name}' need values for {', '.join(missing)}, "
            "which cannot be null"
        )


# -- merges ----------------------------------------------------------------------------------------

_IN_SOURCE = "_lance_bridge_in_source"
_ROW_KEYS = {ROW_ID: "_lance_bridge_rowid", ROW_ADDRESS: "_lance_bridge_rowaddr"}
"""The row key columns, renamed to avoid conflicts with columns of the source."""


class Merge:
    """One attempt at a merge, on one version of the target."""

    def __init__(self, target: Snapshot, source: DataFrame, on: Any, clauses: Clauses) -> None:
        self._target = target
        self._clauses = clauses
        self._names = list(source.columns)
        self._source = source.alias(SOURCE)
        self._on = self._condition(on)

    def plan(self) -> Plan:
        """Return the rows that change, with the action for each."""
        joined = self._join()
        branches = self._branches()
        actions = [each.action for each in branches]
        number = F.lit(None).cast("int")
        if self._clauses.needs_one_match:
            # A match without an action also counts as one of several matches.
            number = F.when(self._is_matched, F.lit(len(actions)))
            actions.append(Action(Kind.KEEP))
        for place, branch in reversed(list(enumerate(branches))):
            number = F.when(branch.condition, F.lit(place)).otherwise(number)
        rows = joined.withColumn(change.ACTION, number).where(F.col(change.ACTION).isNotNull())
        columns = self._columns(branches)
        values = self._values(joined, branches, columns)
        row_keys = [F.col(_ROW_KEYS[key]).alias(key) for key in ROW_KEY_COLUMNS]
        chosen = rows.select(*row_keys, change.ACTION, *alias_values(values))
        inserts = self._clauses.inserted is not None
        return Plan(
            chosen,
            actions,
            columns,
            needs_one_match=self._clauses.needs_one_match,
            guards_all=inserts,
        )

    # -- the join ----------------------------------------------------------------------------------

    def _join(self) -> DataFrame:
        texts = [self._on, *self._clauses.texts]
        if all(isinstance(each, str) for each in texts):
            some = self._join_columns(self._target.columns_in(*texts))
            try:
                _ = some.where(as_column(self._on)).schema
                self._values(some, self._branches(), self._columns(self._branches()))
                return some
            except AnalysisException:
                pass  # A column may have been left out: try with all columns.
        return self._join_columns(self._target.schema.names)

    def _join_columns(self, columns: list[str]) -> DataFrame:
        target = self._target.scan(columns, ROW_KEY_COLUMNS)
        for mark, name in _ROW_KEYS.items():
            target = target.withColumnRenamed(mark, name)
        source = self._source.withColumn(_IN_SOURCE, F.lit(True))
        keeps_source = self._clauses.inserted is not None
        keeps_target = bool(self._clauses.unmatched)
        kinds = {
            (False, False): "inner",
            (True, False): "right",
            (False, True): "left",
            (True, True): "full",
        }
        join_type = kinds[keeps_source, keeps_target]
        return target.alias(TARGET).join(source, as_column(self._on), join_type)

    def _condition(self, on: Any) -> Any:
        if not isinstance(on, (list, tuple)):
            return on
        if not on:
            raise invalid("A merge needs at least one column to compare by: `on` is empty")
        return " AND ".join(self._equality(name) for name in on)

    def _equality(self, name: str) -> str:
        match = find_name(name, self._names)
        if match is None:
            raise TableColumnNotFoundError(
                f"The source has no column '{name}': it has {', '.join(self._names)}"
            )
        ours = quoted((TARGET, self._target.column(name)))
        return f"{ours} = {quoted((SOURCE, match))}"

    # -- actions -----------------------------------------------------------------------------------

    @property
    def _is_matched(self) -> Column:
        return F.col(_ROW_KEYS[ROW_ID]).isNotNull() & F.col(_IN_SOURCE).isNotNull()

    def _branches(self) -> list[Branch]:
        in_target, in_source = F.col(_ROW_KEYS[ROW_ID]), F.col(_IN_SOURCE)
        inserted = () if self._clauses.inserted is None else (self._clauses.inserted,)
        sides = (
            (self._is_matched, self._clauses.matched),
            (in_source.isNotNull() & in_target.isNull(), inserted),
            (in_target.isNotNull() & in_source.isNull(), self._clauses.unmatched),
        )
        return [
            _branch(self._target, rows, clause, self._names)
            for rows, clauses in sides
            for clause in clauses
        ]

    def _columns(self, branches: list[Branch]) -> tuple[str, ...]:
        """Return the columns that get new values in some rows."""
        found = {name for branch in branches for name in branch.values}
        return tuple(name for name in self._target.schema.names if name in found)

    def _values(
        self, joined: DataFrame, branches: list[Branch], columns: tuple[str, ...]
    ) -> list[Column]:
        """Return each column's new value, chosen by the row's action."""
        # Expressions of rows to insert may only refer to the source's columns.
        made = [
            cast_values(
                self._target,
                self._source if each.action.kind is Kind.INSERT else joined,
                each.values,
            )
            for each in branches
        ]
        values = []
        for name in columns:
            value = F.lit(None)
            for place, of_step in enumerate(made):
                if name in of_step:
                    is_it = F.col(change.ACTION) == F.lit(place)
                    value = F.when(is_it, of_step[name]).otherwise(value)
            values.append(value)
        return values

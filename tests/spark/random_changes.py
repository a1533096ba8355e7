"""Random changes of a table: the statement, and a query for the rows that it must leave.

The query reads the rows before the change from a view of Spark's own, and Spark evaluates it, so
that it says what Spark itself makes of the same expressions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import lance_bridge_spark as lb

from .random_rows import KEY, TYPES, WIDER, Columns, Plain, Sql, Struct, Type, null_of, quoted

MANY, FEW = 120, 15
"""Rows from which on a change removes some, and up to which it adds some."""
_MOST_COLUMNS, _FEWEST_COLUMNS = 36, 26


@dataclass(frozen=True)
class Change:
    """A change of the table `{t}`.

    Attributes:
        statement: SQL, or a text for the report of what `run` does.
        expected: A query of the rows after it over those before it, also `{t}`; empty if the rows
            stay.
        columns: The columns after it; None if they stay.
        version: The version whose rows and columns the table has after it.
        run: Makes the change, from the session and the table's name, if it is no statement.
    """

    statement: str
    expected: str = ""
    columns: Columns | None = None
    version: int | None = None
    run: Callable[[Any, str], object] | None = None


@dataclass
class State:
    """What is known of the table.

    Attributes:
        ids: Those of its rows.
        versions: Versions whose rows are remembered.
        labels: Tags and branches by name, with the version of each.
        indices: Returns the columns of its indices by name.
    """

    columns: Columns
    ids: list[int] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    indices: Callable[[], dict[str, list[str]]] = dict
    next_id: int = 0


@dataclass(frozen=True)
class Clause:
    """A WHEN of a MERGE; without values it deletes."""

    when: str
    condition: str
    values: Mapping[str, str] | None
    is_star: bool = False

    @property
    def text(self) -> str:
        condition = f" AND ({self.condition})" if self.condition else ""
        return f"WHEN {self.when}{condition} THEN {self._action}"

    @property
    def _action(self) -> str:
        if self.values is None:
            return "DELETE"
        verb = "INSERT" if self.when == NEW else "UPDATE SET"
        if self.is_star:
            return f"{verb} *"
        if verb == "INSERT":
            return f"INSERT ({quoted([*self.values])}) VALUES ({', '.join(self.values.values())})"
        return f"{verb} {_assignments(self.values)}"


MATCHED, NEW, ONLY_TARGET = "MATCHED", "NOT MATCHED", "NOT MATCHED BY SOURCE"


class Changes:
    """Makes random changes of a table in a state."""

    def __init__(self, chance: random.Random, state: State, step: int) -> None:
        self._chance = chance
        self._state = state
        self._step = step
        self._columns = state.columns
        self._sql = Sql(chance, state.columns)

    def choose(self) -> tuple[str, Change]:
        """Return the name of a kind, and a change of it."""
        kinds = KINDS
        if len(self._state.ids) > MANY:
            kinds = {name: weight for name, weight in KINDS.items() if name in _REMOVE}
        elif len(self._state.ids) <= FEW:
            kinds = {name: weight for name, weight in KINDS.items() if name in _ADD}
        [kind] = self._chance.choices([*kinds], [*kinds.values()])
        return kind, self.make(kind)

    def make(self, kind: str) -> Change:
        """Return a change of a kind, or an INSERT if the table allows none."""
        change: Change | None = getattr(self, f"_{kind}")()
        return change or self._insert()

    # Rows.

    def _insert(self) -> Change:
        rows = self._sql.rows(self._new_ids(8))
        return Change(f"INSERT INTO {{t}} {rows}", f"SELECT * FROM {{t}} UNION ALL {rows}")

    def _insert_by_name(self) -> Change:
        names = self._chance.sample([*self._columns], len(self._columns))
        rows = self._sql.rows(self._new_ids(5), names)
        return Change(f"INSERT INTO {{t}} BY NAME {rows}", self._with(rows, names))

    def _insert_some_columns(self) -> Change:
        names = self._chance.sample([*self._columns], self._chance.randint(1, 9))
        names = [*dict.fromkeys([*names, KEY])]
        rows = self._sql.rows(self._new_ids(5), names)
        return Change(f"INSERT INTO {{t}} ({quoted(names)}) {rows}", self._with(rows, names))

    def _insert_own_rows(self) -> Change:
        key = f"{self._state.next_id}L + row_number() OVER (ORDER BY `{KEY}`)"
        self._state.next_id += len(self._state.ids) + 1
        values = self._selected({KEY: key, **self._new_values()})
        rows = f"SELECT {values} FROM {{t}} WHERE `{KEY}` % 4 = 0 AND ({self._sql.condition()})"
        return Change(f"INSERT INTO {{t}} {rows}", f"SELECT * FROM {{t}} UNION ALL {rows}")

    def _insert_overwrite(self) -> Change:
        rows = f"SELECT * FROM {{t}} WHERE {self._most()} UNION ALL {self._new_rows()}"
        return Change(f"INSERT OVERWRITE {{t}} {rows}", rows)

    def _update(self) -> Change:
        values, condition = self._new_values(), self._sql.condition()
        where = f" WHERE {condition}" if self._chance.random() < 0.9 else ""
        statement = f"UPDATE {{t}} SET {_assignments(values)}{where}"
        return Change(statement, self._updated(values, condition if where else "true"))

    def _update_by_subquery(self) -> Change:
        values = self._new_values()
        condition = f"`{KEY}` IN (SELECT `{KEY}` + 1 FROM {{t}} WHERE {self._sql.condition()})"
        statement = f"UPDATE {{t}} SET {_assignments(values)} WHERE {condition}"
        return Change(statement, self._updated(values, condition))

    def _update_field(self) -> Change | None:
        found = self._a_struct()
        if found is None:
            return None
        name, struct = found
        inside = self._chance.choice([*struct.fields])
        value = self._sql.value(struct.fields[inside])
        condition = f"`{name}` IS NOT NULL AND ({self._sql.condition()})"
        statement = f"UPDATE {{t}} SET `{name}`.`{inside}` = {value} WHERE {condition}"
        fields = {each: value if each == inside else f"`{name}`.`{each}`" for each in struct.fields}
        return Change(statement, self._updated({name: _struct(name, fields)}, condition))

    def _update_by_function(self) -> Change:
        values, condition = self._new_values(), self._sql.condition()
        return Change(
            f"lb.update({{t}}, {values}, {condition!r})",
            self._updated(values, condition),
            run=lambda spark, table: lb.update(spark, table, values, condition),
        )

    def _delete(self) -> Change:
        condition = self._sql.condition()
        if self._chance.random() < 0.8:
            condition = f"({condition}) AND `{KEY}` % 3 = {self._chance.randint(0, 2)}"
        return Change(f"DELETE FROM {{t}} WHERE {condition}", self._deleted(condition))

    def _delete_by_subquery(self) -> Change:
        some = f"`{KEY}` % 5 = 0 AND ({self._sql.condition()})"
        condition = f"`{KEY}` IN (SELECT `{KEY}` + 1 FROM {{t}} WHERE {some})"
        return Change(f"DELETE FROM {{t}} WHERE {condition}", self._deleted(condition))

    def _delete_by_function(self) -> Change:
        condition = f"({self._sql.condition()}) AND `{KEY}` % 3 = 1"
        return Change(
            f"lb.delete({{t}}, {condition!r})",
            self._deleted(condition),
            run=lambda spark, table: lb.delete(spark, table, condition),
        )

    def _truncate(self) -> Change:
        return Change("TRUNCATE TABLE {t}", "SELECT * FROM {t} WHERE false")

    # MERGE.

    def _merge(self) -> Change:
        old = self._chance.sample(self._state.ids, min(len(self._state.ids), 8))
        source = self._sql.rows([*old, *self._new_ids(6)])
        adds = self._chance.random() < 0.7
        on = f"t.`{KEY}` = s.`{KEY}`"
        if not adds:  # else rows with the ids of others would be added
            on = f"{on} AND ({Sql(self._chance, self._columns, 't.').condition(1)})"
        clauses = self._clauses(adds=adds)
        whens = " ".join(each.text for each in clauses)
        statement = f"MERGE INTO {{t}} t USING ({source}) s ON {on} {whens}"
        return Change(statement, merged(self._columns, source, on, clauses))

    def _merge_by_function(self) -> Change:
        old = self._chance.sample(self._state.ids, min(len(self._state.ids), 8))
        source = self._sql.rows([*old, *self._new_ids(6)])
        on = f"t.`{KEY}` = s.`{KEY}`"
        everything = {name: f"s.`{name}`" for name in self._columns}
        clauses = [Clause(when, "", everything, is_star=True) for when in (MATCHED, NEW)]

        def run(spark: Any, table: str) -> object:
            return lb.merge_into(
                *(spark.sql(source), table, [KEY]),
                when_matched_update="*",
                when_not_matched_insert="*",
            )

        expected = merged(self._columns, source, on, clauses)
        return Change(f"lb.merge_into({source!r}, {{t}}, [{KEY!r}], …)", expected, run=run)

    def _clauses(self, *, adds: bool) -> list[Clause]:
        found = [
            *self._alternatives(MATCHED, self._chance.randint(0, 3)),
            *self._alternatives(NEW, self._chance.randint(1, 2) if adds else 0),
            *self._alternatives(ONLY_TARGET, self._chance.choice((0, 0, 1, 2))),
        ]
        return found or self._alternatives(MATCHED, 1)

    def _alternatives(self, when: str, count: int) -> list[Clause]:
        """Return clauses of one kind: all but the last must have a condition."""
        return [self._clause(when, is_last=n == count - 1) for n in range(count)]

    def _clause(self, when: str, *, is_last: bool) -> Clause:
        target, source = (Sql(self._chance, self._columns, each) for each in ("t.", "s."))
        readable = {MATCHED: (target, source), NEW: (source,), ONLY_TARGET: (target,)}[when]
        condition = self._chance.choice(readable).condition(1)
        if is_last and self._chance.random() < 0.5 and when != ONLY_TARGET:
            condition = ""
        if when != NEW and self._chance.random() < 0.35:
            return Clause(when, f"({condition or 'true'}) AND t.`{KEY}` % 2 = 0", None)
        others = [name for name in self._columns if name != KEY]
        if when != ONLY_TARGET and self._chance.random() < 0.4:
            everything = {name: source.name(name) for name in self._columns}
            return Clause(when, condition, everything, is_star=True)
        names = self._chance.sample(others, self._chance.randint(1, 4))
        values = {name: self._chance.choice(readable).changed(name) for name in names}
        return Clause(when, condition, {KEY: f"s.`{KEY}`", **values} if when == NEW else values)

    # Columns.

    def _add_columns(self) -> Change | None:
        if len(self._columns) >= _MOST_COLUMNS:
            return None
        names = [f"{self._new_name()}{n}" for n in range(self._chance.randint(1, 2))]
        new: dict[str, Type] = {name: self._chance.choice(TYPES) for name in names}
        listed = ", ".join(f"`{name}` {type_.sql}" for name, type_ in new.items())
        nulls = ", ".join(f"{null_of(type_)} AS `{name}`" for name, type_ in new.items())
        statement = f"ALTER TABLE {{t}} ADD COLUMNS ({listed})"
        return Change(statement, f"SELECT *, {nulls} FROM {{t}}", {**self._columns, **new})

    def _drop_column(self) -> Change | None:
        if len(self._columns) <= _FEWEST_COLUMNS:
            return None
        name = self._chance.choice([each for each in self._columns if each != KEY])
        left = {each: type_ for each, type_ in self._columns.items() if each != name}
        statement = f"ALTER TABLE {{t}} DROP COLUMN `{name}`"
        return Change(statement, f"SELECT {quoted([*left])} FROM {{t}}", left)

    def _rename_column(self) -> Change:
        old = self._chance.choice([each for each in self._columns if each != KEY])
        new = self._new_name()
        names = {each: new if each == old else each for each in self._columns}
        columns = {names[each]: type_ for each, type_ in self._columns.items()}
        values = ", ".join(f"`{each}` AS `{name}`" for each, name in names.items())
        statement = f"ALTER TABLE {{t}} RENAME COLUMN `{old}` TO `{new}`"
        return Change(statement, f"SELECT {values} FROM {{t}}", columns)

    def _retype_column(self) -> Change | None:
        indexed = {each for columns in self._state.indices().values() for each in columns}
        found = {
            name: WIDER[type_.sql]
            for name, type_ in self._columns.items()
            if isinstance(type_, Plain) and type_.sql in WIDER and name not in indexed
        }
        if not found:
            return None
        name = self._chance.choice([*found])
        value = f"CAST(`{name}` AS {found[name].sql})"
        statement = f"ALTER TABLE {{t}} ALTER COLUMN `{name}` TYPE {found[name].sql}"
        expected = f"SELECT {self._selected({name: value})} FROM {{t}}"
        return Change(statement, expected, {**self._columns, name: found[name]})

    def _comment_on_column(self) -> Change:
        name = self._chance.choice([*self._columns])
        return Change(f"ALTER TABLE {{t}} ALTER COLUMN `{name}` COMMENT 'Of step {self._step}'")

    def _add_field(self) -> Change | None:
        found = self._a_struct()
        if found is None or len(found[1].fields) > 5:
            return None
        (name, struct), new = found, f"f{self._step}"
        type_ = self._chance.choice(TYPES)
        fields = {**{each: f"`{name}`.`{each}`" for each in struct.fields}, new: null_of(type_)}
        return self._with_fields(
            f"ALTER TABLE {{t}} ADD COLUMN `{name}`.`{new}` {type_.sql}",
            *(name, fields, {**struct.fields, new: type_}),
        )

    def _drop_field(self) -> Change | None:
        found = self._a_struct()
        if found is None or len(found[1].fields) < 3:
            return None
        name, struct = found
        gone = self._chance.choice([*struct.fields])
        left = {each: type_ for each, type_ in struct.fields.items() if each != gone}
        fields = {each: f"`{name}`.`{each}`" for each in left}
        statement = f"ALTER TABLE {{t}} DROP COLUMN `{name}`.`{gone}`"
        return self._with_fields(statement, name, fields, left)

    def _rename_field(self) -> Change | None:
        found = self._a_struct()
        if found is None:
            return None
        (name, struct), new = found, f"r{self._step}"
        old = self._chance.choice([*struct.fields])
        names = {each: new if each == old else each for each in struct.fields}
        fields = {names[each]: f"`{name}`.`{each}`" for each in struct.fields}
        types = {names[each]: type_ for each, type_ in struct.fields.items()}
        statement = f"ALTER TABLE {{t}} RENAME COLUMN `{name}`.`{old}` TO `{new}`"
        return self._with_fields(statement, name, fields, types)

    # DataFrames, and tables that a query replaces.

    def _append_frame(self) -> Change:
        rows = self._sql.rows(self._new_ids(6))
        way = self._chance.choice([*APPENDS])
        return Change(
            f"{way} of {rows}",
            f"SELECT * FROM {{t}} UNION ALL {rows}",
            run=lambda spark, table: APPENDS[way](spark.sql(rows), table),
        )

    def _overwrite_frame(self) -> Change:
        rows = f"SELECT * FROM {{t}} WHERE {self._most()} UNION ALL {self._new_rows()}"
        way = self._chance.choice([*OVERWRITES])
        return Change(
            f"{way} of {rows}",
            rows,
            run=lambda spark, table: OVERWRITES[way](spark.sql(put(rows, table)), table),
        )

    def _replace_table(self) -> Change:
        names = self._chance.sample([*self._columns], len(self._columns))
        query = f"SELECT {quoted(names)} FROM {{t}} WHERE {self._most()}"
        columns = {name: self._columns[name] for name in names}
        return Change(f"CREATE OR REPLACE TABLE {{t}} USING lance AS {query}", query, columns)

    # Maintenance, and versions.

    def _compact(self) -> Change:
        rows = self._chance.choice((10, 50, 1048576))
        return Change(f"CALL prod.system.compact('{{t}}', target_rows => {rows})")

    def _create_index(self) -> Change:
        found = {
            path: INDEXED[each.sql] for path, each in self._sql.leaves() if each.sql in INDEXED
        }
        path = self._chance.choice([*found])
        given = f"'{{t}}', '{path}', '{self._chance.choice(found[path])}', 'by step {self._step}'"
        return Change(f"CALL prod.system.create_index({given})")

    def _optimize_indices(self) -> Change:
        return Change("CALL prod.system.optimize_indices('{t}')")

    def _drop_index(self) -> Change | None:
        names = [*self._state.indices()]
        if not names:
            return None
        return Change(f"CALL prod.system.drop_index('{{t}}', '{self._chance.choice(names)}')")

    def _clean_up(self) -> Change:
        return Change("CALL prod.system.clean_up('{t}', older_than_hours => 24)")

    def _create_tag(self) -> Change:
        return self._labelled("create_tag", f"tag_{self._step}")

    def _create_branch(self) -> Change:
        return self._labelled("create_branch", f"branch_{self._step}")

    def _labelled(self, procedure: str, name: str) -> Change:
        version = self._chance.choice(self._state.versions)
        self._state.labels[name] = version
        return Change(f"CALL prod.system.{procedure}('{{t}}', '{name}', {version})")

    def _restore(self) -> Change:
        version = self._chance.choice(self._state.versions[-30:])
        return Change(f"CALL prod.system.restore('{{t}}', {version})", version=version)

    # Parts of statements.

    def _new_ids(self, most: int) -> range:
        start = self._state.next_id
        self._state.next_id += self._chance.randint(1, most)
        return range(start, self._state.next_id)

    def _new_rows(self) -> str:
        return self._sql.rows(self._new_ids(4))

    def _new_name(self) -> str:
        return self._chance.choice(("c", "Wide ", "ö", "x-")) + str(self._step)

    def _new_values(self) -> dict[str, str]:
        """Return expressions for some columns."""
        names = [name for name in self._columns if name != KEY]
        chosen = self._chance.sample(names, self._chance.randint(1, 4))
        return {name: self._sql.changed(name) for name in chosen}

    def _most(self) -> str:
        """Return a condition that most rows meet."""
        return f"`{KEY}` % 4 <> {self._chance.randint(0, 3)} OR ({self._sql.condition()})"

    def _a_struct(self) -> tuple[str, Struct] | None:
        found = {name: each for name, each in self._columns.items() if isinstance(each, Struct)}
        return self._chance.choice([*found.items()]) if found else None

    def _selected(self, values: Mapping[str, str]) -> str:
        """Return the columns in their order, some of them with other values."""
        return ", ".join(f"{values.get(each, f'`{each}`')} AS `{each}`" for each in self._columns)

    def _with(self, rows: str, names: Iterable[str]) -> str:
        """Return the rows of the table and new ones, which may lack columns."""
        given = {*names}
        values = (
            f"`{each}`" if each in given else f"{null_of(type_)} AS `{each}`"
            for each, type_ in self._columns.items()
        )
        return f"SELECT * FROM {{t}} UNION ALL SELECT {', '.join(values)} FROM ({rows})"

    def _with_fields(
        self, statement: str, name: str, fields: Mapping[str, str], types: Mapping[str, Type]
    ) -> Change:
        """Return a change of the fields of a struct."""
        expected = f"SELECT {self._selected({name: _struct(name, fields)})} FROM {{t}}"
        return Change(statement, expected, {**self._columns, name: Struct(types)})

    def _updated(self, values: Mapping[str, str], condition: str) -> str:
        changed = {
            name: f"CASE WHEN h.found IS NULL THEN `{name}` ELSE {value} END"
            for name, value in values.items()
        }
        found = f"SELECT `{KEY}` AS found FROM {{t}} WHERE {condition}"
        rows = f"{{t}} r LEFT JOIN ({found}) h ON r.`{KEY}` = h.found"
        return f"SELECT {self._selected(changed)} FROM {rows}"

    @staticmethod
    def _deleted(condition: str) -> str:
        found = f"SELECT `{KEY}` AS found FROM {{t}} WHERE {condition}"
        return f"SELECT r.* FROM {{t}} r LEFT ANTI JOIN ({found}) h ON r.`{KEY}` = h.found"


def put(text: str, table: str) -> str:
    """Return a statement with the name of the table in it."""
    return text.replace("{t}", table)


def _assignments(values: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` = {value}" for name, value in values.items())


def _struct(name: str, fields: Mapping[str, str]) -> str:
    """Return a struct with other fields, which is null where it was."""
    inside = ", ".join(f"'{field}', {value}" for field, value in fields.items())
    return f"IF(`{name}` IS NULL, NULL, named_struct({inside}))"


def merged(columns: Columns, source: str, on: str, clauses: Sequence[Clause]) -> str:
    """Return a query of the rows after a MERGE of a source `s` into a target `t`.

    Each row has the number of the first clause that is for it, as `k`; 0 if none is.
    """
    old = {n: each for n, each in enumerate(clauses, 1) if each.when != NEW}
    new = {n: each for n, each in enumerate(clauses, 1) if each.when == NEW}
    pairs = f"SELECT struct(t.*) AS t, struct(s.*) AS s FROM {{t}} t LEFT JOIN ({source}) s ON {on}"
    deleted = [f"{n}" for n, each in old.items() if each.values is None]
    kept = (
        f"SELECT {_chosen(columns, old, 't.')} FROM (SELECT *, {_first(old)} AS k FROM ({pairs})) "
        f"WHERE k NOT IN (-1, {', '.join(deleted) or '-1'})"
    )
    if not new:
        return kept
    unmatched = (
        f"SELECT struct(s.*) AS s, {_first(new)} AS k "
        f"FROM ({source}) s LEFT ANTI JOIN {{t}} t ON {on}"
    )
    return f"{kept} UNION ALL SELECT {_chosen(columns, new, '')} FROM ({unmatched}) WHERE k > 0"


def _first(clauses: Mapping[int, Clause]) -> str:
    """Return the number of the first clause whose condition is true."""
    found = {MATCHED: f"s.`{KEY}` IS NOT NULL", ONLY_TARGET: f"s.`{KEY}` IS NULL", NEW: "true"}
    cases = "".join(
        f" WHEN {found[each.when]} AND ({each.condition or 'true'}) THEN {n}"
        for n, each in clauses.items()
    )
    return f"CASE WHEN false THEN -1{cases} ELSE 0 END"


def _chosen(columns: Columns, clauses: Mapping[int, Clause], kept: str) -> str:
    """Return the columns as the clause of each row sets them."""
    values = []
    for name, type_ in columns.items():
        cases = "".join(
            f" WHEN k = {n} THEN {each.values[name]}"
            for n, each in clauses.items()
            if each.values is not None and name in each.values
        )
        other = f"{kept}`{name}`" if kept else null_of(type_)
        values.append(f"CASE WHEN false THEN {other}{cases} ELSE {other} END AS `{name}`")
    return ", ".join(values)


def _lance(frame: Any, mode: str) -> Any:
    return frame.write.format("lance").mode(mode)


APPENDS: Mapping[str, Callable[[Any, str], object]] = {
    "writeTo.append": lambda frame, table: frame.writeTo(table).append(),
    "insertInto": lambda frame, table: frame.write.insertInto(table),
    "saveAsTable in mode append": lambda frame, table: _lance(frame, "append").saveAsTable(table),
    "save in mode append": lambda frame, table: _lance(frame, "append").save(table),
}
OVERWRITES: Mapping[str, Callable[[Any, str], object]] = {
    "writeTo.overwritePartitions": lambda frame, table: frame.writeTo(table).overwritePartitions(),
    "insertInto, overwrite": lambda frame, table: frame.write.insertInto(table, overwrite=True),
    "saveAsTable in mode overwrite": lambda frame, table: _lance(frame, "overwrite").saveAsTable(
        table
    ),
    "save in mode overwrite": lambda frame, table: _lance(frame, "overwrite").save(table),
}
INDEXED = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), ("BTREE", "BITMAP", "ZONEMAP")),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"), ("BTREE",)),
    "DECIMAL(10,2)": ("BTREE",),
    "STRING": ("BTREE", "BITMAP", "NGRAM", "FTS"),
    "BOOLEAN": ("BITMAP",),
}
"""Types of indices by the type of the column."""
KINDS = {
    "insert": 8,
    "insert_by_name": 3,
    "insert_some_columns": 4,
    "insert_own_rows": 3,
    "insert_overwrite": 3,
    "update": 8,
    "update_by_subquery": 2,
    "update_field": 3,
    "update_by_function": 3,
    "delete": 6,
    "delete_by_subquery": 2,
    "delete_by_function": 2,
    "truncate": 1,
    "merge": 10,
    "merge_by_function": 2,
    "add_columns": 3,
    "drop_column": 3,
    "rename_column": 2,
    "retype_column": 2,
    "comment_on_column": 1,
    "add_field": 2,
    "drop_field": 1,
    "rename_field": 1,
    "append_frame": 5,
    "overwrite_frame": 3,
    "replace_table": 2,
    "compact": 4,
    "create_index": 6,
    "optimize_indices": 2,
    "drop_index": 1,
    "clean_up": 1,
    "create_tag": 2,
    "create_branch": 1,
    "restore": 2,
}
"""Kinds of changes, and how often each is chosen."""
_REMOVE = {"delete", "delete_by_function", "insert_overwrite", "overwrite_frame"}
_ADD = {"insert", "insert_by_name", "merge", "append_frame", "insert_some_columns"}

"""Random queries of a table, whose rows are the same whatever reads the table."""

from __future__ import annotations

import random
from dataclasses import dataclass

from .random_rows import KEY, Array, Columns, Map, Plain, Sql, Struct

_FLOATS = ("FLOAT", "DOUBLE")
_ORDERS = ("", "DESC", "ASC NULLS LAST", "DESC NULLS FIRST")


@dataclass(frozen=True)
class Query:
    """A query of `{t}`, and whether its rows have an order."""

    text: str
    is_ordered: bool = False


class Queries:
    """Makes random queries of a table with these columns."""

    def __init__(self, chance: random.Random, columns: Columns) -> None:
        self._chance = chance
        self._columns = columns
        self._sql = Sql(chance, columns)

    def choose(self) -> Query:
        """Return a query of any kind."""
        kinds = (
            self._filter,
            self._filter,
            self._subquery,
            self._fields,
            self._aggregates,
            self._aggregates,
            self._groups,
            self._groups,
            self._distinct,
            self._first_rows,
            self._first_rows,
            self._page,
            self._join,
            self._missing_in_join,
            self._window,
            self._elements,
            self._set_operation,
        )
        return self._chance.choice(kinds)()

    def _filter(self) -> Query:
        return Query(f"SELECT {self._some()} FROM {{t}} WHERE {self._sql.condition()}")

    def _subquery(self) -> Query:
        some = f"SELECT `{KEY}` + 1 FROM {{t}} WHERE {self._sql.condition()}"
        negated = self._chance.choice(("", "NOT "))
        where = f"`{KEY}` {negated}IN ({some}) AND ({self._sql.condition(1)})"
        return Query(f"SELECT {self._some()} FROM {{t}} WHERE {where}")

    def _fields(self) -> Query:
        """Read parts of values, and values that functions make of them."""
        parts = [path for path, _ in self._sql.leaves() if "." in path]
        for name, type_ in self._columns.items():
            if isinstance(type_, Array):
                parts += [f"size(`{name}`)", f"get(`{name}`, 0)"]
                parts += [f"`{name}`.a"] if "`a`" in type_.sql else []
            elif isinstance(type_, Map):
                parts += [f"try_element_at(`{name}`, 'k')", f"map_keys(`{name}`)"]
            elif isinstance(type_, Struct):
                parts.append(f"to_json(`{name}`)")
            elif type_.sql in ("TIMESTAMP", "DATE", "TIMESTAMP_NTZ", "DECIMAL(38,18)"):
                parts.append(f"CAST(`{name}` AS STRING)")
        chosen = self._chance.sample(parts, min(4, len(parts)))
        listed = ", ".join(f"{part} AS p{n}" for n, part in enumerate(chosen))
        return Query(f"SELECT `{KEY}`, {listed} FROM {{t}}{self._where()}")

    def _aggregates(self) -> Query:
        return Query(f"SELECT {self._totals()} FROM {{t}}{self._where()}")

    def _groups(self) -> Query:
        keys = ", ".join(f"`{name}`" for name in self._plain(self._chance.choice((1, 1, 2))))
        return Query(f"SELECT {keys}, {self._totals()} FROM {{t}}{self._where()} GROUP BY {keys}")

    def _distinct(self) -> Query:
        names = ", ".join(f"`{name}`" for name in self._plain(self._chance.choice((1, 2))))
        return Query(f"SELECT DISTINCT {names} FROM {{t}}{self._where()}")

    def _first_rows(self) -> Query:
        names = self._plain(self._chance.choice((1, 1, 2)))
        order = ", ".join(f"`{name}` {self._chance.choice(_ORDERS)}" for name in names)
        return Query(
            f"SELECT {self._some()} FROM {{t}}{self._where()} ORDER BY {order}, `{KEY}` "
            f"LIMIT {self._chance.randint(1, 20)} OFFSET {self._chance.choice((0, 0, 3, 11))}",
            is_ordered=True,
        )

    def _page(self) -> Query:
        """Count the rows of a page: which ones it has is not said."""
        page = f"LIMIT {self._chance.randint(0, 60)} OFFSET {self._chance.choice((0, 5, 40))}"
        return Query(f"SELECT count(*) FROM (SELECT * FROM {{t}}{self._where()} {page})")

    def _join(self) -> Query:
        [name] = self._plain(1)
        kind = self._chance.choice(("JOIN", "LEFT JOIN", "FULL JOIN"))
        equal = self._chance.choice(("=", "<=>"))
        on = f"a.`{name}` {equal} b.`{name}` AND a.`{KEY}` < b.`{KEY}` AND b.`{KEY}` % 3 = 0"
        [other] = self._plain(1)
        tables = f"{{t}} a {kind} {{t}} b"
        return Query(f"SELECT a.`{KEY}` AS x, b.`{KEY}` AS y, b.`{other}` FROM {tables} ON {on}")

    def _missing_in_join(self) -> Query:
        [name] = self._plain(1)
        kind = self._chance.choice(("LEFT SEMI", "LEFT ANTI"))
        some = f"(SELECT * FROM {{t}} WHERE {self._sql.condition(1)}) b"
        on = f"a.`{name}` = b.`{name}` AND a.`{KEY}` <> b.`{KEY}`"
        return Query(f"SELECT a.`{KEY}`, a.`{name}` FROM {{t}} a {kind} JOIN {some} ON {on}")

    def _window(self) -> Query:
        [name] = self._plain(1)
        over = f"OVER (PARTITION BY `{name}` ORDER BY `{KEY}`)"
        return Query(
            f"SELECT `{KEY}`, row_number() {over}, lag(`{KEY}`) {over} FROM {{t}}{self._where()}"
        )

    def _elements(self) -> Query:
        arrays = [name for name, each in self._columns.items() if isinstance(each, Array | Map)]
        if not arrays:
            return self._filter()
        name = self._chance.choice(arrays)
        of_map = isinstance(self._columns[name], Map)
        view = f"LATERAL VIEW OUTER explode(`{name}`) x AS {'p, q' if of_map else 'p'}"
        return Query(f"SELECT `{KEY}`, {'p, q' if of_map else 'p'} FROM {{t}} {view}")

    def _set_operation(self) -> Query:
        """Of a part without floating point numbers, of which either zero may be the result."""
        names = [each for each in self._plain(3) if self._columns[each].sql not in _FLOATS]
        columns = ", ".join(f"`{name}`" for name in names or [KEY])
        parts = [f"SELECT {columns} FROM {{t}} WHERE {self._sql.condition(1)}" for _ in range(2)]
        return Query(f" {self._chance.choice(('UNION', 'EXCEPT', 'INTERSECT'))} ".join(parts))

    # Parts of queries.

    def _some(self) -> str:
        names = self._chance.sample([*self._columns], self._chance.randint(1, 5))
        return ", ".join(f"`{name}`" for name in dict.fromkeys([KEY, *names]))

    def _plain(self, count: int) -> list[str]:
        names = [name for name, each in self._columns.items() if isinstance(each, Plain)]
        return self._chance.sample(names, count)

    def _where(self) -> str:
        return f" WHERE {self._sql.condition()}" if self._chance.random() < 0.5 else ""

    def _totals(self) -> str:
        totals = ["count(*)", *(self._total(name) for name in self._plain(3))]
        return ", ".join(f"{total} AS total{n}" for n, total in enumerate(totals))

    def _total(self, name: str) -> str:
        type_ = self._columns[name]
        assert isinstance(type_, Plain)
        # Adding zero makes one of both zeros, either of which may be the maximum.
        of = f"`{name}` + CAST(0 AS {type_.sql})" if type_.sql in _FLOATS else f"`{name}`"
        kinds = [f"count(`{name}`)", f"min({of})", f"max({of})", f"count(DISTINCT `{name}`)"]
        if type_.is_summed:
            kinds += [f"sum(`{name}`)", f"avg(`{name}`)"]
        return self._chance.choice(kinds)

"""Random columns, values and conditions as SQL writes them, over rows of all types."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .tables import COLUMNS, TEXTS

KEY = "id"
"""The column that every row has another value in, and that no change drops or renames."""


@dataclass(frozen=True)
class Plain:
    """A type without another inside.

    Attributes:
        values: Values that a CAST makes values of the type.
        is_summed: Whether a sum is the same in every order of the values.
    """

    sql: str
    values: tuple[str, ...]
    is_summed: bool = False

    @property
    def cast(self) -> str:
        """The type to cast to: Spark knows the length of a string in a table only."""
        return "STRING" if self.sql.startswith("VARCHAR") else self.sql


@dataclass(frozen=True)
class Array:
    """A list; ``length`` is that of vectors."""

    element: Type
    length: int | None = None

    @property
    def sql(self) -> str:
        return f"ARRAY<{self.element.sql}>"


@dataclass(frozen=True)
class Map:
    """A map with strings as keys."""

    value: Type

    @property
    def sql(self) -> str:
        return f"MAP<STRING, {self.value.sql}>"


@dataclass(frozen=True)
class Struct:
    fields: Mapping[str, Type]

    @property
    def sql(self) -> str:
        inside = ", ".join(f"`{name}`: {each.sql}" for name, each in self.fields.items())
        return f"STRUCT<{inside}>"


Type = Plain | Array | Map | Struct
Columns = Mapping[str, Type]


def _known(column: str, *, is_summed: bool = False) -> Plain:
    sql, values = COLUMNS[column]
    return Plain(sql, tuple(values), is_summed)


INT, BIGINT, DOUBLE, STRING = _known("i", is_summed=True), _known("l"), _known("d"), _known("s")
FLOAT, SMALLINT = _known("f"), _known("h", is_summed=True)
EXACT = Plain("DOUBLE", ("0.25D", "-1.5D", "1024D", "0.0D"), is_summed=True)
INTERVALS = ("'1 02:03:04.5'", "'-0 00:00:00.000001'", "'0 00:00:00'", "'40 23:59:59.999999'")
INITIAL: Columns = {
    KEY: Plain("BIGINT", ("0L", "5L", "20L", "60L", "150L", "400L", "1000L")),
    "truth": _known("o"),
    "tiny": _known("b", is_summed=True),
    "small": SMALLINT,
    "i": INT,
    "big": BIGINT,
    "real": FLOAT,
    "wild": DOUBLE,
    "exact": EXACT,
    "money": _known("de", is_summed=True),
    "large": Plain(
        "DECIMAL(38,18)",
        ("0BD", "1.000000000000000001BD", "-99999999999999999999.999999999999999999BD"),
    ),
    "whole": Plain("DECIMAL(20,0)", ("0BD", "18446744073709551615BD", "-1BD")),
    "word": STRING,
    "code": Plain("VARCHAR(5)", ("''", "'a'", "'b''c'", "'日本'", "'abcde'")),
    "bytes": _known("bi"),
    "day": _known("da"),
    "moment": _known("ts"),
    "wall": _known("tn"),
    "span": Plain(
        "INTERVAL DAY TO SECOND", tuple(f"INTERVAL {each} DAY TO SECOND" for each in INTERVALS)
    ),
    "numbers": Array(INT),
    "reals": Array(DOUBLE),
    "words": Array(Array(STRING)),
    "pairs": Map(BIGINT),
    "place": Struct({"x": INT, "in": Struct({"z": STRING, "d": DOUBLE})}),
    "parts": Array(Struct({"a": STRING, "b": Array(FLOAT)})),
    "vector": Array(Plain("FLOAT", ("0.5F", "-1.0F", "0.0F", "float('NaN')")), length=3),
    "Mixed Name": INT,
    "größe": STRING,
    "select": DOUBLE,
}
"""The columns of a new table."""
TYPES = tuple(INITIAL.values())[1:]
WIDER = {
    "TINYINT": SMALLINT,
    "SMALLINT": INT,
    "INT": BIGINT,
    "FLOAT": DOUBLE,
    "DECIMAL(10,2)": Plain("DECIMAL(12,2)", ("0.00BD", "-2.50BD", "9999999999.99BD")),
}
"""Types that a column can have instead, with all its values."""

_KEYS = ("k", "", "日本", "n")
_COMPUTED = {
    "STRING": ("upper({}) = 'AB'", "length({}) > 1", "{} LIKE '%a_'"),
    "INT": ("{} % 3 = 1", "CAST({} AS BIGINT) + 1 > 1"),
    "BIGINT": ("{} % 3 = 1",),
    "DOUBLE": ("isnan({})", "abs({}) < 2"),
    "FLOAT": ("isnan({})", "CAST({} AS DOUBLE) = 0.1D"),
    "DATE": ("year({}) > 1969",),
    "TIMESTAMP": ("hour({}) = 12", "CAST({} AS DATE) = DATE'1970-01-01'"),
    "BINARY": ("length({}) > 1",),
    "DECIMAL(10,2)": ("{} * 2 > 1",),
}
"""Conditions by type that Spark evaluates itself."""
_CHANGED = {
    "STRING": "reverse({})",
    "TINYINT": "{} % 100",
    "SMALLINT": "{} % 100",
    "INT": "{} % 100",
    "BIGINT": "{} % 1000",
    "DOUBLE": "-({})",
    "FLOAT": "-({})",
    "BOOLEAN": "NOT ({})",
    "DECIMAL(10,2)": "-({})",
    "DATE": "date_add({}, 1)",
    "TIMESTAMP": "{} + INTERVAL '1' HOUR",
    "ARRAY<INT>": "reverse({})",
}
"""Expressions by type for a new value, which is of the same type."""


def cast_of(type_: Type) -> str:
    """Return what a value is cast to, to be of a type."""
    return type_.cast if isinstance(type_, Plain) else type_.sql


def null_of(type_: Type) -> str:
    return f"CAST(NULL AS {cast_of(type_)})"


def quoted(names: Sequence[str]) -> str:
    """Return names as a statement lists them."""
    return ", ".join(f"`{name}`" for name in names)


class Sql:
    """Random SQL over columns. ``alias`` comes before their names."""

    def __init__(self, chance: random.Random, columns: Columns, alias: str = "") -> None:
        self.chance = chance
        self.columns = columns
        self._alias = alias

    def name(self, *path: str) -> str:
        return self._alias + ".".join(f"`{each}`" for each in path)

    def value(self, type_: Type, nulls: float = 0.2) -> str:
        """Return a value of a type, which is null with a probability."""
        if self.chance.random() < nulls:
            return null_of(type_)
        if isinstance(type_, Plain):
            return f"CAST({self.chance.choice(type_.values)} AS {cast_of(type_)})"
        if isinstance(type_, Struct):
            fields = (f"'{name}', {self.value(each)}" for name, each in type_.fields.items())
            return f"named_struct({', '.join(fields)})"
        if isinstance(type_, Map):
            keys = self.chance.sample(_KEYS, self.chance.randint(0, 3))
            pairs = ", ".join(f"'{key}', {self.value(type_.value)}" for key in keys)
            return f"map({pairs})" if pairs else f"CAST(map() AS {type_.sql})"
        if type_.length is not None:
            values = [self.value(type_.element, nulls=0) for _ in range(type_.length)]
        else:
            values = [self.value(type_.element) for _ in range(self.chance.randint(0, 3))]
        return f"array({', '.join(values)})" if values else f"CAST(array() AS {type_.sql})"

    def rows(self, ids: Sequence[int], names: Sequence[str] = ()) -> str:
        """Return a query of new rows, with some columns, or all."""
        given = names or [*self.columns]
        lines = (", ".join(self._cell(name, key) for name in given) for key in ids)
        values = ", ".join(f"({line})" for line in lines)
        return f"SELECT * FROM VALUES {values} AS v({quoted(given)})"

    def _cell(self, name: str, key: int) -> str:
        return f"{key}L" if name == KEY else self.value(self.columns[name])

    # Conditions.

    def leaves(self) -> list[tuple[str, Plain]]:
        """Return the columns and fields of structs that have a type without another inside."""
        return [each for name, type_ in self.columns.items() for each in self._leaves(type_, name)]

    def _leaves(self, type_: Type, *path: str) -> Iterator[tuple[str, Plain]]:
        if isinstance(type_, Plain):
            yield self.name(*path), type_
        elif isinstance(type_, Struct):
            for name, each in type_.fields.items():
                yield from self._leaves(each, *path, name)

    def condition(self, depth: int = 2) -> str:
        if depth and self.chance.random() < 0.4:
            first, second = self.condition(depth - 1), self.condition(depth - 1)
            return self.chance.choice(
                (f"({first}) AND ({second})", f"({first}) OR ({second})", f"NOT ({first})")
            )
        return self.computed() if self.chance.random() < 0.25 else self.comparison()

    def comparison(self) -> str:
        """Return a condition of the kinds that Lance evaluates."""
        path, type_ = self.chance.choice(self.leaves())
        values = [self._literal(type_) for _ in range(self.chance.randint(1, 4))]
        operator = self.chance.choice(("=", "<>", "<", "<=", ">", ">=", "<=>"))
        kinds = [
            f"{path} {operator} {values[0]}",
            f"{path} {operator} {values[0]}",
            f"{path} IS {self.chance.choice(('', 'NOT '))}NULL",
            f"{path} {self.chance.choice(('', 'NOT '))}IN ({', '.join(values)})",
            f"{path} BETWEEN {values[0]} AND {values[-1]}",
        ]
        if type_.cast == "STRING":
            pattern = self.chance.choice(("a%", "%c", "%a%", "a%b", "ab", "%", "日%"))
            kinds.append(f"{path} LIKE '{pattern}'")
        return self.chance.choice(kinds)

    def _literal(self, type_: Plain) -> str:
        values = TEXTS if type_.cast == "STRING" else type_.values
        value = self.chance.choice(values)
        return value if self.chance.random() < 0.5 else f"CAST({value} AS {cast_of(type_)})"

    def computed(self) -> str:
        """Return a condition that Spark evaluates itself."""
        name, type_ = self.chance.choice([*self.columns.items()])
        path = self.name(name)
        if isinstance(type_, Array):
            return self.chance.choice((f"size({path}) > 1", f"exists({path}, e -> e IS NULL)"))
        if isinstance(type_, Map):
            return f"map_contains_key({path}, 'k')"
        texts = _COMPUTED.get(cast_of(type_), ("{} IS NOT NULL",))
        return self.chance.choice(texts).format(path)

    # Changes.

    def changed(self, name: str) -> str:
        """Return an expression for a new value of a column, over the old row."""
        type_ = self.columns[name]
        same = [other for other, each in self.columns.items() if each == type_]
        values = [self.value(type_), self.value(type_), self.name(self.chance.choice(same))]
        if text := _CHANGED.get(cast_of(type_)):
            values.append(f"CAST({text.format(self.name(name))} AS {cast_of(type_)})")
        return self.chance.choice(values)

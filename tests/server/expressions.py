"""Random expressions of SQL, most of them wrong, and some too large for any server."""

from __future__ import annotations

import random

from lance_bridge_server.queries.sql import FUNCTIONS, GROWING

COLUMNS = ("id", "word", "vector", "list", "part.x", "`part`.`y`", "at", "none", "_rowid")
TYPES = (
    "int", "bigint", "float", "double", "varchar", "date", "timestamp", "boolean", "bytea",
    "decimal(38, 10)", "float[3]", "float[2147483647]", "int[100][100]",
)  # fmt: skip
ARROW_TYPES = (
    "Int8", "Utf8", "Timestamp(Nanosecond, None)", "FixedSizeList(2147483647 x Float32)",
    "List(Int64)", "Dictionary(Int8, Utf8)", "Struct(a Int64)", "FixedSizeBinary(2147483647)",
)  # fmt: skip
_OPERATORS = ("+", "-", "*", "/", "%", "||", "=", "<", ">=", "<>", "and", "or", "like", "~", "&")
_EXTRAS = ("'", '"', "`", "--", "/*", "*/", ";", "\0", "$$", "e'\\''", ")")
_NAMES = (*sorted(FUNCTIONS), *sorted(GROWING), "other", "sum", "count", "sleep")


class Expressions:
    """Makes expressions from a source of random numbers."""

    def __init__(self, source: random.Random) -> None:
        self._random = source

    def any(self) -> str:
        """Return an expression, or a text that only resembles one."""
        choice = self._random.random()
        if choice < 0.5:
            return self._tree(self._random.choice((1, 2, 4)))
        if choice < 0.7:
            return self._chain()
        if choice < 0.8:
            return self._nested()
        if choice < 0.9:
            return self._list()
        return self._broken()

    def _tree(self, depth: int) -> str:
        if depth <= 0 or self._random.random() < 0.2:
            return self._leaf()
        inner = [self._tree(depth - 1) for _ in range(self._random.choice((2, 2, 3, 5)))]
        return self._random.choice(
            (
                f"{self._random.choice(_NAMES)}({', '.join(inner)})",
                f"{self._random.choice(_NAMES)}({inner[0]})",
                f"({inner[0]} {self._random.choice(_OPERATORS)} {inner[1]})",
                f"cast({inner[0]} as {self._random.choice(TYPES)})",
                f"case when {inner[0]} then {inner[1]} end",
                f"arrow_cast({inner[0]}, '{self._random.choice(ARROW_TYPES)}')",
                f"not {inner[0]}",
            )
        )

    def _leaf(self) -> str:
        return self._random.choice(
            (
                self._random.choice(COLUMNS),
                str(self._random.randint(-(1 << 63), 1 << 63)),
                "'" + "x" * self._random.choice((0, 1, 100, 10_000)) + "'",
                "null", "true", "1e400", "interval '1' day", "x'ff'", "[1, 2]",
            )
        )  # fmt: skip

    def _chain(self) -> str:
        part, operator = self._tree(1), self._random.choice(_OPERATORS)
        return f" {operator} ".join([part] * self._random.choice((10, 150, 1000, 20_000)))

    def _nested(self) -> str:
        count = self._random.choice((10, 40, 100, 5000))
        opening, closing = self._random.choice(
            (("(", ")"), ("abs(", ")"), ("not ", ""), ("- ", ""), ("coalesce(", ", 1)"), ("[", "]"))
        )
        return opening * count + self._leaf() + closing * count

    def _list(self) -> str:
        count = self._random.choice((10, 1000, 50_000))
        return f"{self._random.choice(COLUMNS)} in ({', '.join([self._leaf()] * count)})"

    def _broken(self) -> str:
        text = self._tree(3)
        cut = self._random.randrange(len(text) + 1)
        extra = self._random.choice(
            ("'", '"', "`", "--", "/*", "*/", ";", "\0", "$$", "e'\\''", ")")
        )
        return text[:cut] + extra + text[cut:]

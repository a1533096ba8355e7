"""What Spark's SQL says, as far as jobs have to know it: columns, tables, and the kind of query."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lance_bridge.names import parts_of, quoted
from lance_bridge.tables import expressions

_STAR = re.compile(r"(?:^|[(,.]|\bselect|\bdistinct|\ball)\s*\*", re.IGNORECASE)
_TEXTS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_PART = r"(?:`(?:[^`]|``)+`|[A-Za-z_0-9]+)"
_SOURCE = re.compile(rf"\b(?:from|join)\s+({_PART}(?:\s*\.\s*{_PART})+)", re.IGNORECASE)
_ALIAS = re.compile(r"\s*(?:as\b|(`|[A-Za-z_0-9]+))", re.IGNORECASE)
_AFTER_A_TABLE = re.compile(
    r"where|group|having|order|sort|cluster|distribute|limit|offset|union|intersect|except|minus|"
    r"join|inner|left|right|full|cross|natural|anti|semi|on|using|lateral|pivot|unpivot|window|"
    r"tablesample|version|timestamp|for",
    re.IGNORECASE,
)
_OF_MANY_ROWS = re.compile(
    r"\b(?:distinct|join|group|having|order|sort|cluster|distribute|limit|offset|union|intersect|"
    r"except|minus|over|with|lateral|pivot|unpivot|tablesample|window|values|version|timestamp|"
    r"table)\b|\|>|;",
    re.IGNORECASE,
)
_OF_THE_MOMENT = re.compile(
    r"\b(?:current_\w+|now|curdate|localtimestamp|unix_timestamp|rand|randn|random|randstr|uniform|"
    r"shuffle|uuid|monotonically_increasing_id|spark_partition_id)\b",
    re.IGNORECASE,
)
"""What gives a row another value each time."""
_OF_ROWS = re.compile(
    rf"\s*select\b.+?\bfrom\s+{_PART}(?:\s*\.\s*{_PART})+"
    rf"(?:\s+(?:as\s+)?(?!where\b){_PART})?\s*(?:\bwhere\b.*)?",
    re.IGNORECASE | re.DOTALL,
)


def blanked(sql: str) -> str:
    """Return SQL with its texts and comments as blanks of the same length."""
    return _TEXTS.sub(lambda match: " " * len(match[0]), sql)


def read_columns(sql: str, names: list[str]) -> tuple[str, ...]:
    """Return the columns that SQL may read: all where it has a star for columns."""
    if _STAR.search(blanked(sql)):
        return tuple(names)
    found = set(expressions.columns_in(sql, names))
    return tuple(name for name in names if name in found)


@dataclass(frozen=True)
class Mention:
    """A table of several parts that a query reads, and where the query names it."""

    name: str
    start: int
    end: int


def mentions(query: str) -> list[Mention]:
    """Return the tables of several parts that stand after FROM or JOIN."""
    return [
        Mention(quoted(parts_of(re.sub(r"\s*\.\s*", ".", match[1]))), match.start(1), match.end(1))
        for match in _SOURCE.finditer(blanked(query))
    ]


def replaced(query: str, found: list[Mention], names: dict[str, str]) -> str:
    """Return a query with views in the place of tables, each still called as before."""
    for each in reversed(found):
        if each.name not in names:
            continue
        named = names[each.name]
        if not _has_alias(query, each.end):
            named += f" AS {quoted(parts_of(each.name)[-1:])}"
        query = query[: each.start] + named + query[each.end :]
    return query


def _has_alias(query: str, end: int) -> bool:
    match = _ALIAS.match(blanked(query), end)
    return match is not None and (match[1] is None or not _AFTER_A_TABLE.fullmatch(match[1]))


def may_be_by_row(query: str) -> bool:
    """Return whether a query may be one table's rows, one by one: columns, and a filter.

    An aggregate looks the same; that is told by running it on no rows.
    """
    text = blanked(query)
    words = re.findall(r"\b(?:select|from|where)\b", text.lower())
    is_plain = words in (["select", "from"], ["select", "from", "where"])
    is_other = _OF_MANY_ROWS.search(text) or _OF_THE_MOMENT.search(text)
    return is_plain and not is_other and _OF_ROWS.fullmatch(text) is not None

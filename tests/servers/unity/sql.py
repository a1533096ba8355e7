"""A parser of the few SQL statements that a Lance adapter needs, and of nothing else.

Names may be quoted by backticks; values are string literals with Spark's escapes by backslash.
Two literals in a row are refused: releases differ in whether ``'a''b'`` is ``ab`` or ``a'b``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Name = tuple[str, ...]
_T = TypeVar("_T")


@dataclass(frozen=True)
class CreateTable:
    name: Name
    using: str
    location: str | None
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class SetProperties:
    name: Name
    properties: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class UnsetProperties:
    name: Name
    keys: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True)
class SetLocation:
    name: Name
    location: str


@dataclass(frozen=True)
class RenameTable:
    name: Name
    new_name: Name


@dataclass(frozen=True)
class DropTable:
    name: Name
    if_exists: bool = False


Statement = CreateTable | SetProperties | UnsetProperties | SetLocation | RenameTable | DropTable


class SqlSyntaxError(Exception):
    """The text is none of the statements."""

    def __init__(self, near: str, position: int) -> None:
        super().__init__(f"Syntax error at or near {near}. (pos {position})")
        self.near = near


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    position: int


_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    |(?P<quoted>`(?:[^`]|``)+`)
    |(?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>[(),.=])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[0-3][0-7]{2}|.)", re.DOTALL)
_LETTERS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


def _unescaped(text: str) -> str:
    def replace(found: re.Match[str]) -> str:
        code = found[1]
        if code in "%_":
            return found[0]
        if len(code) == 3:
            return chr(int(code, 8))
        return chr(int(code[1:], 16)) if len(code) > 1 else _LETTERS.get(code, code)

    return _ESCAPE.sub(replace, text)


def _tokens(text: str) -> list[_Token]:
    found, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise SqlSyntaxError(repr(text[position]), position)
        kind, value = match.lastgroup, match[0]
        if kind == "quoted":
            value = value[1:-1].replace("``", "`")
        elif kind == "string":
            value = _unescaped(value[1:-1])
        if kind != "space":
            found.append(_Token(kind, value, position))
        position = match.end()
    return [*found, _Token("end", "end of input", len(text))]


def parse(text: str) -> Statement:
    """Return the statement. Raises SqlSyntaxError."""
    return _Parser(_tokens(text)).statement()


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0

    def statement(self) -> Statement:
        if self._words("CREATE", "TABLE"):
            found: Statement = self._create()
        elif self._words("ALTER", "TABLE"):
            found = self._alter(self._name())
        else:
            self._require("DROP", "TABLE")
            if_exists = self._words("IF", "EXISTS")
            found = DropTable(self._name(), if_exists)
        if self._peek.kind != "end":
            raise self._error()
        return found

    def _create(self) -> CreateTable:
        name = self._name()
        self._require("USING")
        using = self._take("word").text.upper()
        location: str | None = None
        properties: tuple[tuple[str, str], ...] = ()
        # Spark takes these clauses in any order, each once.
        while self._peek.kind == "word":
            if location is None and self._words("LOCATION"):
                location = self._string()
            elif not properties and self._words("TBLPROPERTIES"):
                properties = self._list(self._property)
            else:
                raise self._error()
        return CreateTable(name, using, location, properties)

    def _alter(self, name: Name) -> Statement:
        if self._words("RENAME", "TO"):
            return RenameTable(name, self._name())
        if self._words("UNSET", "TBLPROPERTIES"):
            if_exists = self._words("IF", "EXISTS")
            return UnsetProperties(name, self._list(self._string), if_exists)
        self._require("SET")
        if self._words("LOCATION"):
            return SetLocation(name, self._string())
        self._require("TBLPROPERTIES")
        return SetProperties(name, self._list(self._property))

    # -- parts -----------------------------------------------------------------------------------

    def _name(self) -> Name:
        parts = [self._identifier()]
        while self._sign("."):
            parts.append(self._identifier())
        return tuple(parts)

    def _identifier(self) -> str:
        if self._peek.kind not in ("word", "quoted"):
            raise self._error()
        return self._take(self._peek.kind).text

    def _string(self) -> str:
        return self._take("string").text

    def _property(self) -> tuple[str, str]:
        key = self._string()
        self._sign_required("=")
        return key, self._string()

    def _list(self, item: Callable[[], _T]) -> tuple[_T, ...]:
        self._sign_required("(")
        found = [item()]
        while self._sign(","):
            found.append(item())
        self._sign_required(")")
        return tuple(found)

    # -- tokens ----------------------------------------------------------------------------------

    @property
    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _error(self) -> SqlSyntaxError:
        return SqlSyntaxError(repr(self._peek.text), self._peek.position)

    def _take(self, kind: str) -> _Token:
        token = self._peek
        if token.kind != kind:
            raise self._error()
        self._next += 1
        return token

    def _words(self, *words: str) -> bool:
        """Take these keywords if they come next."""
        ahead = self._tokens[self._next : self._next + len(words)]
        fits = [t.text.upper() for t in ahead if t.kind == "word"] == list(words)
        self._next += len(words) if fits else 0
        return fits

    def _require(self, *words: str) -> None:
        if not self._words(*words):
            raise self._error()

    def _sees(self, sign: str) -> bool:
        return (self._peek.kind, self._peek.text) == ("sign", sign)

    def _sign(self, sign: str) -> bool:
        """Take this sign if it comes next."""
        fits = self._sees(sign)
        self._next += fits
        return fits

    def _sign_required(self, sign: str) -> None:
        if not self._sign(sign):
            raise self._error()

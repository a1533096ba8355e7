"""The dialect of CSV that read options describe, and its rows as the second reader parses them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .storage import UnreachableError

_DEFAULT_SEPARATOR, _DEFAULT_QUOTE, _BACKSLASH = ",", '"', "\\"
_UNSUPPORTED = ("lineSep", "comment", "unescapedQuoteHandling", "charToEscapeQuoteEscaping")


class UnsupportedOptionError(UnreachableError):
    """A read option that the second reader does not know; the message names it."""


@dataclass(frozen=True)
class Cell:
    """A value in a file: its text, and whether it has quotes, as an empty text has."""

    text: str
    is_quoted: bool = False


Record = list[Cell]


@dataclass(frozen=True)
class Dialect:
    """How values are separated and quoted.

    Attributes:
        escape: The character before a quote in a quoted value: the quote itself in most files.
        encoding: As the read option gives it, or "".
        line_end: The last character of a line: a return in files of old systems.
    """

    separator: str = _DEFAULT_SEPARATOR
    quote: str = _DEFAULT_QUOTE
    escape: str = _DEFAULT_QUOTE
    has_header: bool = False
    encoding: str = ""
    line_end: str = "\n"

    def records(self, text: str) -> Iterator[Record]:
        """Yield the records of a text, without empty lines."""
        pattern = self._pattern()
        at, record = 0, list[Cell]()
        while at < len(text):
            found = pattern.match(text, at)
            assert found is not None, "the pattern matches an empty value"
            quoted, after, plain, end = found.groups()
            if quoted is not None:
                record.append(Cell(self._unescaped(quoted) + after, is_quoted=True))
            else:
                record.append(Cell(plain))
            at = found.end()
            if end == self.separator and at < len(text):
                continue
            if end == self.separator:  # the last value of the text is empty
                record.append(Cell(""))
            if record != [Cell("")]:
                yield record
            record = []

    def _pattern(self) -> re.Pattern[str]:
        quote, separator = re.escape(self.quote), re.escape(self.separator)
        escape = re.escape(self.escape)
        inside = rf"[^{quote}]*(?:{quote}{quote}[^{quote}]*)*"
        if self.escape != self.quote:
            inside = rf"[^{quote}{escape}]*(?:{escape}.[^{quote}{escape}]*)*"
        value = rf"{quote}({inside}){quote}([^{separator}\r\n]*)|([^{separator}\r\n]*)"
        return re.compile(rf"(?:{value})({separator}|\r\n|\n|\r|\Z)", re.DOTALL)

    def _unescaped(self, text: str) -> str:
        if self.escape == self.quote:
            return text.replace(self.quote * 2, self.quote)
        quoted = re.escape(self.quote)
        return re.sub(rf"{re.escape(self.escape)}({quoted}|{re.escape(self.escape)})", r"\1", text)


def dialect_of(read_options: Mapping[str, str]) -> Dialect:
    """Return the dialect that read options describe.

    An escape character counts only if it is given: without one, doubled quotes are the rule.

    Raises:
        UnsupportedOptionError: The second reader cannot do what an option says.
    """
    options = {key.lower(): value for key, value in read_options.items()}
    unknown = next((key for key in _UNSUPPORTED if options.get(key.lower())), None)
    separator = options.get("sep", options.get("delimiter", _DEFAULT_SEPARATOR))
    separator = separator.replace("\\t", "\t")
    quote = options.get("quote", _DEFAULT_QUOTE)
    if unknown is not None or len(separator) != 1 or len(quote) != 1 or not separator.isascii():
        raise UnsupportedOptionError(
            f"the read option {unknown or ('sep' if len(separator) != 1 else 'quote')}"
        )
    return Dialect(
        separator,
        quote,
        options.get("escape", quote),
        options.get("header", "").lower() == "true",
        options.get("encoding", options.get("charset", "")),
    )

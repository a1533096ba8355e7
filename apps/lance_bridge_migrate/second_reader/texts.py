"""Open text files and decode them, whatever their compression and encoding."""

from __future__ import annotations

import bz2
import codecs
import gzip
from typing import BinaryIO, cast

from .storage import Storage, UnreachableError

LATIN = "ISO-8859-1"
_WIDE = {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
_NOT_OPENED = (".zst", ".snappy", ".lz4", ".deflate", ".xz", ".lzo")


def open_text(storage: Storage, uri: str) -> BinaryIO:
    """Open a file, decompressed.

    Raises:
        UnreachableError: It cannot be read, or has a compression that Python does not have.
    """
    name = uri.lower()
    if name.endswith(_NOT_OPENED):
        raise UnreachableError(f"{uri} is compressed in a way that it does not know")
    file = storage.open(uri)
    if name.endswith(".gz"):
        return cast("BinaryIO", gzip.open(file))
    return cast("BinaryIO", bz2.open(file)) if name.endswith(".bz2") else file


def encoding_of(data: bytes, given: str, *, is_utf8: bool) -> str:
    """Return the encoding of a text: the given one, or what it must be if that is UTF-8."""
    if given:
        return given
    wide = next((name for mark, name in _WIDE.items() if data.startswith(mark)), "")
    return wide or ("" if is_utf8 else LATIN)


def is_wide(encoding: str) -> bool:
    """Return whether the bytes of a line break are not those of ASCII."""
    return encoding.upper().replace("-", "").startswith(("UTF16", "UTF32"))


def decode(data: bytes, encoding: str) -> str:
    """Return a text without its mark of the byte order.

    Raises:
        UnreachableError: It is not in this encoding, or Python does not know that.
    """
    try:
        return data.decode(encoding or "utf-8").removeprefix("\ufeff")
    except (UnicodeDecodeError, LookupError) as error:
        raise UnreachableError(str(error)[:200]) from error

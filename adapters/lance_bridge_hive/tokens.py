"""Delegation tokens of a metastore, from a string or from a file of Hadoop's tokens.

A scheduler that has a Kerberos ticket gets such a token from the metastore and gives it to its
containers, which have none. Sources: `Token`, `Credentials`, `WritableUtils` and `Security.proto`
of Hadoop, whose file has two versions: 0 with Hadoop's serialization, 1 with protocol buffers.
"""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

KIND = "HIVE_DELEGATION_TOKEN"
"""The kind of the tokens of metastores, and of HiveServer2, which have another service."""
_MAGIC = b"HDTS"
_WRITABLE, _PROTOBUF = 0, 1
_MOST_BYTES = 16 * 1024 * 1024
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
"""Wire types of protocol buffers."""


@dataclass(frozen=True)
class DelegationToken:
    """A token of Hadoop. The password is a secret, and the identifier names the user."""

    identifier: bytes = field(repr=False)
    password: bytes = field(repr=False)
    kind: str
    service: str

    @property
    def sasl_username(self) -> str:
        """The identifier as SASL's user name."""
        return base64.b64encode(self.identifier).decode()

    @property
    def sasl_password(self) -> str:
        """The password as SASL's."""
        return base64.b64encode(self.password).decode()


def parse_token(text: str) -> DelegationToken:
    """Return the token in a string, as ``get_delegation_token`` of a metastore returns it.

    Raises:
        ValueError: it is none. The message does not repeat it.
    """
    try:
        bare = text.strip().rstrip("=")
        padded = bare + "=" * (-len(bare) % 4)
        return _read_token(_Bytes(base64.b64decode(padded, altchars=b"-_", validate=True)))
    except (binascii.Error, ValueError):
        raise ValueError("it is not a delegation token of Hadoop") from None


def read_token(path: Path, service: str) -> DelegationToken:
    """Return the token of a metastore in a file of tokens.

    Args:
        service: The service of the token, which is empty unless the client that got it set one
            (`hive.metastore.token.signature`).

    Raises:
        ValueError: the file cannot be read, or has no such token. The message has no secret.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    try:
        tokens = list(_read_file(content))
    except ValueError as error:
        raise ValueError(f"{path} is not a file of Hadoop's tokens: {error}") from None
    own = [each for each in tokens if each.kind == KIND]
    for token in own:
        if token.service == service:
            return token
    if not own:
        raise ValueError(f"{path} has no token of the kind {KIND}")
    others = ", ".join(sorted(f"'{each.service}'" for each in own))
    raise ValueError(
        f"{path} has no token of the kind {KIND} for the service '{service}', but for {others}: "
        "set auth.token-service"
    )


def _read_file(content: bytes) -> Iterator[DelegationToken]:
    if len(content) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES} bytes")
    source = _Bytes(content)
    if source.take(len(_MAGIC)) != _MAGIC:
        raise ValueError(f"it does not begin with {_MAGIC.decode()}")
    version = source.take(1)[0]
    if version == _WRITABLE:
        for _ in range(source.hadoop_number()):
            source.hadoop_bytes()  # its alias
            yield _read_token(source)
    elif version == _PROTOBUF:
        for number, entry in _fields(source.take(source.varint())):
            if number == 1:
                yield _token_of_message(entry)
    else:
        raise ValueError(f"its version {version} is unknown")


def _read_token(source: _Bytes) -> DelegationToken:
    identifier, password = source.hadoop_bytes(), source.hadoop_bytes()
    kind, service = source.hadoop_bytes(), source.hadoop_bytes()
    return DelegationToken(identifier, password, _text(kind), _text(service))


def _token_of_message(entry: bytes) -> DelegationToken:
    token = dict(_fields(dict(_fields(entry)).get(2, b"")))
    identifier, password, kind, service = (token.get(number, b"") for number in (1, 2, 3, 4))
    return DelegationToken(identifier, password, _text(kind), _text(service))


def _text(content: bytes) -> str:
    return content.decode(errors="replace")


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of a message that are bytes, texts or messages, with their numbers."""
    source = _Bytes(message)
    while not source.is_empty:
        number, wire = divmod(source.varint(), 8)
        if wire == _BYTES:
            yield number, source.take(source.varint())
        elif wire == _VARINT:
            source.varint()
        elif wire in (_FIXED_64, _FIXED_32):
            source.take(8 if wire == _FIXED_64 else 4)
        else:
            raise ValueError("a field has an unknown type")


class _Bytes:
    """Reads from bytes. Every method raises ValueError at their end."""

    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)
        self._size = len(content)

    @property
    def is_empty(self) -> bool:
        """True at the end."""
        return self._content.tell() == self._size

    def take(self, count: int) -> bytes:
        """Return exactly so many bytes."""
        found = self._content.read(count) if 0 <= count <= self._size else b""
        if len(found) != count:
            raise ValueError("it ends too early")
        return found

    def varint(self) -> int:
        """Return a number of protocol buffers: seven bits in each byte, the lowest first."""
        value = shift = 0
        while shift < 64:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ValueError("a number is too long")

    def hadoop_number(self) -> int:
        """Return a count as Hadoop writes it: one byte up to 127, else its size comes before it."""
        first = int.from_bytes(self.take(1), "big", signed=True)
        if first >= 0:
            return first
        if not -120 <= first < -112:
            raise ValueError("a count is negative")
        return int.from_bytes(self.take(-112 - first), "big")

    def hadoop_bytes(self) -> bytes:
        """Return bytes whose count stands before them."""
        return self.take(self.hadoop_number())

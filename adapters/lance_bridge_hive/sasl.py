"""SASL in Thrift's frames, by which a metastore authenticates callers: PLAIN, tokens and Kerberos.

Sources: Thrift's specification of its SASL transport; RFC 4616 (PLAIN), RFC 2831 (DIGEST-MD5, by
which Hadoop authenticates tokens) and RFC 4752 (GSSAPI, Kerberos).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from thrift.transport.TTransport import TBufferedTransport, TTransportBase, TTransportException

from lance_bridge.errors import invalid

from .config import Endpoint, HiveConfig
from .sockets import DeadlineSocket
from .tokens import DelegationToken, parse_token, read_token

_START, _OK, _BAD, _ERROR, _COMPLETE = range(1, 6)
"""What a message of the handshake is."""
_MOST_HANDSHAKE_BYTES = 1 << 20
_READ_BUFFER = 65_536
_MOST_PROTECTED_BYTES = 0xFFFFFF
"""The largest that three bytes can say. Metastores send larger messages, too."""
_AUTHENTICATED, _SIGNED, _ENCRYPTED = 1, 2, 4
"""What protects messages, as bits of a metastore's offer."""
_DIGEST_ADDRESS = b"null/default"
"""The address in a digest: Hadoop names no protocol, which Java writes as null, and the realm."""
_DIRECTIVE = re.compile(rb'\s*([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",]*))\s*(?:,|$)', re.DOTALL)
_NO_PROTECTION = (
    "the metastore requires that SASL encrypts or signs messages (hadoop.rpc.protection), which "
    "works with auth.mechanism=kerberos only: for delegation tokens it must also allow "
    "'authentication'; encrypt with tls.enabled"
)
_EXPIRED = " (is the delegation token expired or cancelled, or that of another metastore?)"


class SaslRefused(TTransportException):  # type: ignore[misc]  # thrift ships no types
    """The client or the server refused the handshake."""

    def __init__(self, message: str) -> None:
        super().__init__(TTransportException.NOT_OPEN, message)


class _ClientError(Exception):
    """The client cannot continue the handshake; the text says why, without secrets."""


class _Mechanism(ABC):
    """The client's side of a handshake, and of the messages after it."""

    name: str
    is_complete = False
    """True if the server may say now that the handshake is complete."""

    @abstractmethod
    def respond(self, challenge: bytes) -> bytes:
        """Return the response to a challenge; the first challenge is empty.

        Raises:
            _ClientError: There is no ticket, or the challenge is wrong.
        """

    def wrap(self, message: bytes) -> bytes:
        """Protect a message, if the mechanism does. Raises TTransportException."""
        return message

    def unwrap(self, message: bytes) -> bytes:
        """Check and decrypt a message, if the mechanism does. Raises TTransportException."""
        return message


def sasl_transport(sock: DeadlineSocket, endpoint: Endpoint, config: HiveConfig) -> Any:
    """Authenticate over ``sock`` and return the transport that frames later messages.

    Raises:
        SaslRefused: Either side refused; the message holds no secret.
        TTransportException: The connection failed in the middle.
        InvalidInputError: a package is missing; the message says how to install it.
    """
    mechanism = _mechanism(endpoint, config)
    try:
        _authenticate(sock, mechanism)
    except _ClientError as error:
        raise SaslRefused(f"{mechanism.name} failed in the client: {error}") from error
    return TBufferedTransport(_Frames(sock, mechanism), _READ_BUFFER)


def _mechanism(endpoint: Endpoint, config: HiveConfig) -> _Mechanism:
    if config.auth_mechanism == "kerberos":
        host = config.kerberos_host or endpoint.host
        return _Kerberos(f"{config.kerberos_service}@{host}")
    if config.auth_mechanism == "delegation-token":
        return _Digest(_delegation_token(config))
    password = config.auth_password.get_secret_value() if config.auth_password else ""
    return _Plain(config.auth_username or "", password)


def _delegation_token(config: HiveConfig) -> DelegationToken:
    """Return the delegation token; its file is read now, because tokens in it are replaced."""
    if config.auth_token is not None:
        return parse_token(config.auth_token.get_secret_value())
    try:
        return read_token(Path(config.token_file or ""), config.auth_token_service)
    except ValueError as error:
        raise SaslRefused(f"There is no delegation token: {error}") from None


# -- Thrift's frames ------------------------------------------------------------------------------


def _authenticate(sock: DeadlineSocket, mechanism: _Mechanism) -> None:
    first = mechanism.respond(b"")
    _send(sock, _START, mechanism.name.encode())
    _send(sock, _OK, first)
    while True:
        status, challenge = _receive(sock)
        if status == _OK:
            _send(sock, _OK, mechanism.respond(challenge))
        elif status == _COMPLETE:
            if challenge:
                mechanism.respond(challenge)
            if not mechanism.is_complete:
                raise _ClientError("the metastore did not finish the handshake")
            return
        else:
            said = repr(challenge)[2:-1] if status in (_BAD, _ERROR) else f"status {status}"
            hint = _EXPIRED if isinstance(mechanism, _Digest) else ""
            raise SaslRefused(f"{mechanism.name} was refused: {said}{hint}")


def _send(sock: DeadlineSocket, status: int, body: bytes) -> None:
    sock.write(struct.pack("!BI", status, len(body)) + body)


def _receive(sock: DeadlineSocket) -> tuple[int, bytes]:
    status, size = struct.unpack("!BI", sock.readAll(5))
    if size > _MOST_HANDSHAKE_BYTES:  # of a server that is not authenticated
        raise TTransportException(
            TTransportException.SIZE_LIMIT, f"a message of the handshake has {size} bytes"
        )
    return status, sock.readAll(size)


class _Frames(TTransportBase):  # type: ignore[misc]  # thrift ships no types
    """Sends and reads messages in frames: their size in four bytes, then what protects them."""

    def __init__(self, sock: DeadlineSocket, mechanism: _Mechanism) -> None:
        self._sock = sock
        self._mechanism = mechanism
        self._message = memoryview(b"")

    def write(self, data: bytes) -> None:
        """Send a whole message. Raises TTransportException."""
        message = self._mechanism.wrap(data)
        self._sock.write(struct.pack("!I", len(message)) + message)

    def read(self, size: int) -> bytes:
        """Return between 1 and ``size`` bytes. Raises TTransportException."""
        while not self._message:
            (length,) = struct.unpack("!I", self._sock.readAll(4))
            self._message = memoryview(self._mechanism.unwrap(self._sock.readAll(length)))
        chunk, self._message = self._message[:size], self._message[size:]
        return bytes(chunk)


# -- mechanisms -----------------------------------------------------------------------------------


class _Plain(_Mechanism):
    """A user and a password, which the metastore checks."""

    name = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._response = f"\0{user}\0{password}".encode()

    def respond(self, challenge: bytes) -> bytes:
        if challenge:
            raise _ClientError("the metastore sent a challenge, which PLAIN does not have")
        self.is_complete = True
        return self._response


class _Digest(_Mechanism):
    """A delegation token, of which both sides know the password."""

    name = "DIGEST-MD5"

    def __init__(self, token: DelegationToken) -> None:
        self._user = token.sasl_username.encode()
        self._password = token.sasl_password.encode()
        self._proof: bytes | None = None
        """What the metastore has to send, if it knows the password, too."""

    def respond(self, challenge: bytes) -> bytes:
        if not challenge:
            return b""
        directives = _directives(challenge)
        if self._proof is None:
            return self._first_response(directives)
        if not hmac.compare_digest(directives.get("rspauth", b""), self._proof):
            raise _ClientError("the metastore does not prove that it knows the token")
        self.is_complete = True
        return b""

    def _first_response(self, directives: dict[str, bytes]) -> bytes:
        if b"auth" not in re.split(rb"[\s,]+", directives.get("qop", b"auth")):
            raise _ClientError(_NO_PROTECTION)
        if "nonce" not in directives:
            raise _ClientError("the metastore's challenge has no nonce")
        realm, nonce = directives.get("realm", b""), directives["nonce"]
        client_nonce = secrets.token_hex(16).encode()
        secret = b":".join((_md5(self._user, realm, self._password), nonce, client_nonce))

        def digest(method: bytes) -> bytes:
            request = _md5(method, _DIGEST_ADDRESS).hex().encode()
            key = hashlib.md5(secret, usedforsecurity=False).hexdigest().encode()
            return _md5(key, nonce, b"00000001", client_nonce, b"auth", request).hex().encode()

        self._proof = digest(b"")
        return b",".join([
            b"qop=auth,nc=00000001,charset=utf-8",
            b"realm=" + _quote(realm),
            b"username=" + _quote(self._user),
            b"nonce=" + _quote(nonce),
            b"cnonce=" + _quote(client_nonce),
            b"digest-uri=" + _quote(_DIGEST_ADDRESS),
            b"response=" + digest(b"AUTHENTICATE"),
        ])  # fmt: skip


def _md5(*parts: bytes) -> bytes:
    return hashlib.md5(b":".join(parts), usedforsecurity=False).digest()


def _quote(value: bytes) -> bytes:
    return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _directives(challenge: bytes) -> dict[str, bytes]:
    """Return the directives of a challenge; of a repeated one, the first."""
    found: dict[str, bytes] = {}
    end = 0
    while end < len(challenge):
        match = _DIRECTIVE.match(challenge, end)
        if match is None:
            raise _ClientError("the metastore's challenge is malformed")
        name, quoted, bare = match.groups()
        value = bare.strip() if quoted is None else re.sub(rb"\\(.)", rb"\1", quoted)
        found.setdefault(name.decode().lower(), value)
        end = match.end()
    return found


class _Kerberos(_Mechanism):
    """A ticket of the process, which can also protect messages, as the metastore requires."""

    name = "GSSAPI"

    def __init__(self, service: str) -> None:
        """Args: service: ``hive@host`` for the principal ``hive/host``."""
        try:
            import gssapi  # noqa: PLC0415 - only needed with Kerberos
        except ImportError as error:
            raise invalid(
                "auth.mechanism=kerberos needs the package gssapi: "
                "run pip install 'lance-bridge[hive-kerberos]'"
            ) from error
        self._gssapi = gssapi
        self._error = gssapi.exceptions.GSSError
        self._service = service
        self._context: Any = None
        self._protection = _AUTHENTICATED

    def respond(self, challenge: bytes) -> bytes:
        try:
            if self._context is None:
                self._context = self._new_context()
            if not self._context.complete:
                return self._context.step(challenge or None) or b""
            return self._choose_protection(challenge)
        except self._error as error:
            raise _ClientError(_reason(error)) from error

    def _new_context(self) -> Any:
        flag = self._gssapi.RequirementFlag
        return self._gssapi.SecurityContext(
            name=self._gssapi.Name(self._service, self._gssapi.NameType.hostbased_service),
            mech=self._gssapi.MechType.kerberos,
            flags=[
                flag.mutual_authentication,
                flag.out_of_sequence_detection,
                flag.integrity,
                flag.confidentiality,
            ],
            usage="initiate",
        )

    def _choose_protection(self, challenge: bytes) -> bytes:
        """Choose the strongest protection that the metastore offers."""
        offer = self._context.unwrap(challenge).message
        if self.is_complete or len(offer) != 4:
            raise _ClientError("the metastore's offer to protect messages is malformed")
        offered = (each for each in (_ENCRYPTED, _SIGNED, _AUTHENTICATED) if each & offer[0])
        self._protection = next(offered, 0)
        if not self._protection:
            raise _ClientError("the metastore offers no known protection of messages")
        most = 0 if self._protection == _AUTHENTICATED else _MOST_PROTECTED_BYTES
        choice = struct.pack("!I", self._protection << 24 | most)
        user = str(self._context.initiator_name).encode()
        self.is_complete = True
        return bytes(self._context.wrap(choice + user, False).message)

    def wrap(self, message: bytes) -> bytes:
        if self._protection == _AUTHENTICATED:
            return message
        with self._transport_errors():
            wrapped = self._context.wrap(message, self._protection == _ENCRYPTED)
        return self._checked(wrapped)

    def unwrap(self, message: bytes) -> bytes:
        if self._protection == _AUTHENTICATED:
            return message
        with self._transport_errors():
            unwrapped = self._context.unwrap(message)
        return self._checked(unwrapped)

    def _checked(self, result: Any) -> bytes:
        if self._protection == _ENCRYPTED and not result.encrypted:
            raise TTransportException(
                TTransportException.UNKNOWN, "Kerberos does not encrypt messages as was agreed"
            )
        return bytes(result.message)

    @contextmanager
    def _transport_errors(self) -> Iterator[None]:
        try:
            yield
        except self._error as error:
            message = f"Kerberos refuses a message: {_reason(error)}"
            raise TTransportException(TTransportException.UNKNOWN, message) from error


def _reason(error: Any) -> str:
    """Return the texts of an error of GSSAPI: of the mechanism, or else general ones."""
    texts = error.get_all_statuses(error.min_code, False) if error.min_code else []
    return "; ".join(texts or error.get_all_statuses(error.maj_code, True))

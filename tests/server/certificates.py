"""A certificate authority for tests, and certificates of servers and clients."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates, and writes them as PEM files.

    Args:
        directory: Where the files are.
        name: The name of the authority, and the beginning of its file's name.
    """

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = self._sign(self._name, self._key.public_key(), (), is_authority=True)
        self.path = directory / f"{name}.pem"
        self.path.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        common_name: str | None,
        *,
        names: Sequence[x509.GeneralName] = (),
        units: Sequence[str] = (),
        password: str | None = None,
        expires: timedelta = timedelta(days=1),
    ) -> tuple[Path, Path]:
        """Make a certificate and its key; return their paths."""
        attributes = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, each) for each in units]
        if common_name is not None:
            attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._sign(x509.Name(attributes), key.public_key(), names, expires=expires)
        stem = f"{self.path.stem}-{made.serial_number:x}"
        certificate, private = (self._directory / f"{stem}.{end}" for end in ("pem", "key"))
        certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(password.encode())
                if password
                else serialization.NoEncryption(),
            )
        )
        return certificate, private

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        names: Sequence[x509.GeneralName],
        *,
        is_authority: bool = False,
        expires: timedelta = timedelta(days=1),
    ) -> x509.Certificate:
        now = datetime.now(timezone.utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(now + expires)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def tls_client(authority: Authority, pair: tuple[Path, Path] | None) -> httpx.Client:
    """Return a client that trusts an authority, and has a certificate or none."""
    context = ssl.create_default_context(cafile=authority.path)
    if pair:
        context.load_cert_chain(*pair)
    return httpx.Client(verify=context)


def loopback() -> list[x509.GeneralName]:
    """Return the names of this machine."""
    return [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]

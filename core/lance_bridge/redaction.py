"""Recognises secrets by the names of settings and by their form, and removes them from texts.

For texts without declarations: settings of Spark, options of readers, messages of other libraries.
Declared properties define whether they are secret (`CatalogConfig.is_secret`).
"""

from __future__ import annotations

import re

HIDDEN = "***"

_WORDS = (
    r"secret|passw|passphrase|token|credential|signature|authorization|cookie|keytab|jaas|"
    r"access.?key|account.?key|shared.?access|sas.?key|private.?key|api.?key|key.?pair|"
    r"connection.?string|encryption.*key"
)
_SHORT_WORDS = r"sas|pwd|pass|pem|auth|bearer|jwt"
"""These count only if they stand alone, as in ``sas.box`` and ``db_pwd``, not ``compass``."""
_ALONE = rf"(?<![a-zA-Z])(?:{_SHORT_WORDS})(?![a-zA-Z])"
_CAMEL = r"(?:[a-z0-9](?:Sas|Pwd|Pass|Pem|Auth|Jwt)(?![a-z]))"
_KEY = re.compile(rf"(?i:{_WORDS})|(?i:{_ALONE})|{_CAMEL}")
_PLAIN_KEY = re.compile(
    # Properties of catalogs, and settings of Spark, that say how secrets are handled.
    r"(?:^|\.)(?:secrets\.(?:file|provider)|pickle\.secrets|credentials\.(?:vend|write)"
    r"|(?:lakeformation\.)?vend-credentials|redaction\..*regex|auth\.mechanism"
    r"|auth\.token-(?:file|service)"
    r"|credentials-duration)$|\.redaction\.",
    re.IGNORECASE,
)
SPARK_PATTERN = rf"^\S*(?i:{_WORDS}|(?:^|[._-])(?:{_SHORT_WORDS})(?:$|[._-]))\S*$"
"""A regular expression for Spark's setting ``spark.redaction.regex``, as Java reads it.

Spark tries it on values too: it matches none with a space in it, such as a comment.
"""

IN_URL = re.compile(r"(?<=//)[^/@\s]*:[^/@\s]*@")
"""The user and the password of a URL."""
_VALUE = r"(?:\"[^\"]+\"|'[^']+'|[^\s&;,/'\")}\]]+)"
ASSIGNED = re.compile(
    rf"((?:{_WORDS}|(?<![a-z])(?:sig|sas|pwd|pass|pem))[\w.-]*[\"']?\s*[=:]\s*){_VALUE}",
    re.IGNORECASE,
)
"""A secret that follows its name, as in ``jdbc:…?password=x``, ``-Dkey.password=x`` and JSON."""
_LOGIN = re.compile(r"(jdbc:oracle:\w+:)[^/@\s]+/[^@\s]+(?=@)", re.IGNORECASE)
"""The user and the password of Oracle's URLs."""
_USER_AND_PASSWORD = re.compile(r"^[\w.+-]+:[^\s/@:]+@[\w.-]+|(?<=\s)[\w.+-]+:[^\s/@:]+@[\w.-]+")
"""``user:password@host``, as some addresses are given without a scheme."""
_HEADER = re.compile(
    r"((?i:\bBearer)\s+|(?i:\b(?:Basic|Digest|Negotiate))\s+(?=\S*[A-Z0-9=]))[\w.~+/=-]{6,}"
)
_SHAPES = re.compile(
    r"\bdapi[0-9a-f]{16,}(?:-\d+)?"  # Databricks' personal access tokens
    r"|\bdose[0-9a-f]{16,}"  # and OAuth secrets
    r"|\beyJ[\w-]{6,}\.[\w-]{6,}\.[\w-]*"  # JSON web tokens
    r"|\bya29\.[\w.-]{10,}|\bgh[opsur]_\w{20,}|\bgithub_pat_\w{20,}|\bhf_[A-Za-z0-9]{20,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"
)
_PATTERNS = (IN_URL, ASSIGNED, _LOGIN, _USER_AND_PASSWORD, _HEADER, _SHAPES)


def is_secret(key: str) -> bool:
    """Return whether a setting or option of this name holds a secret."""
    return _KEY.search(key) is not None and _PLAIN_KEY.search(key) is None


def contains_secret(text: str) -> bool:
    """Return whether a text contains a recognisable secret."""
    return any(pattern.search(text) for pattern in _PATTERNS)


def redact(text: str) -> str:
    """Return a text without its recognisable secrets."""
    text = IN_URL.sub(f"{HIDDEN}@", text)
    text = _LOGIN.sub(rf"\1{HIDDEN}", text)
    text = _USER_AND_PASSWORD.sub(lambda match: f"{HIDDEN}@{match[0].rpartition('@')[2]}", text)
    text = _HEADER.sub(rf"\1{HIDDEN}", text)
    text = _SHAPES.sub(HIDDEN, text)
    return ASSIGNED.sub(rf"\1{HIDDEN}", text)

"""Keeps credentials out of what botocore logs at DEBUG: headers of requests, replies of STS."""

from __future__ import annotations

import logging
import re

_LOGGERS = (
    "auth", "awsrequest", "client", "credentials", "endpoint", "hooks", "httpsession", "parsers",
    "retryhandler", "tokens", "utils",
)  # fmt: skip
_NAMES = (
    r"x-amz-security-token|(?:aws_?)?secret_?access_?key|(?:aws_?)?session_?token|access_?token|"
    r"web_?identity_?token|client_?secret|\btoken"
)
_SECRET = re.compile(rf"((?:{_NAMES})['\"]?\s*[:=>]\s*b?['\"]?)[^\s'\"<&,;}}\]]+", re.IGNORECASE)


class _WithoutCredentials(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        clean = _SECRET.sub(r"\1***", text)
        if clean != text:
            record.msg, record.args = clean, ()
        return True


_filter = _WithoutCredentials()


def redact_logs() -> None:
    """Have botocore's loggers write ``***`` for secret keys and session tokens. Safe to repeat.

    Loggers are of the whole process, so that this holds for other clients of botocore's as well.
    """
    for name in _LOGGERS:
        logging.getLogger(f"botocore.{name}").addFilter(_filter)

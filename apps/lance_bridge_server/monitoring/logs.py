"""The log of a server: plain text or JSON, on standard error."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone
from typing import Any

from ..configuration.settings import LogSettings
from ..secret_values import hide_secrets
from .telemetry import REQUEST_ID

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class TextFormatter(logging.Formatter):
    """Formats records as plain text, without recognisable secrets."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def format(self, record: logging.LogRecord) -> str:
        return hide_secrets(super().format(record))


class JsonFormatter(logging.Formatter):
    """Formats each record as a JSON object, without recognisable secrets."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": hide_secrets(record.getMessage()),
        }
        request_id = REQUEST_ID.get()
        if request_id is not None:
            fields["request_id"] = request_id
        if record.exc_info:
            fields["exception"] = hide_secrets(self.formatException(record.exc_info))
        return json.dumps(fields, ensure_ascii=False)


def log_config(settings: LogSettings) -> dict[str, Any]:
    """Return the configuration of `logging` for a server's processes."""
    formatter = JsonFormatter if settings.format == "json" else TextFormatter
    handler = {"class": "logging.StreamHandler", "formatter": "line"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": formatter}},
        "handlers": {"stderr": handler},
        "root": {"handlers": ["stderr"], "level": settings.level.upper()},
        # httpx logs every request to an identity provider.
        "loggers": {"httpx": {"level": "WARNING"}},
    }

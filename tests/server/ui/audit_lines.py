"""An audit log that is kept in memory."""

from __future__ import annotations

import json
import logging
from typing import Any

from lance_bridge_server.audit import AuditLog


class Lines(logging.Handler):
    """Keeps the lines of an audit log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []
        logger = logging.Logger("audit")
        logger.addHandler(self)
        self.log = AuditLog(logger)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(record.getMessage()))

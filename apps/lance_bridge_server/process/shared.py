"""State of a server process that survives reloads of its configuration."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from ..limits import Admission
from ..login.sealing import KEY_BYTES
from ..monitoring.metrics import Metrics
from .lifecycle import Lifecycle


def new_session_key() -> bytes:
    """Return a key for `Process.session_key`."""
    return secrets.token_bytes(KEY_BYTES)


@dataclass
class Process:
    """The state of a process that survives reloads of its configuration."""

    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    metrics: Metrics = field(default_factory=Metrics)
    admission: Admission = field(default_factory=Admission)
    session_key: bytes = field(default_factory=new_session_key, repr=False)
    """The key that encrypts cookies if the configuration has none."""

"""What one process of a server has once, whatever configuration it reads later on."""

from __future__ import annotations

from dataclasses import dataclass, field

from .lifecycle import Lifecycle
from .limits import Admission
from .metrics import Metrics


@dataclass
class Process:
    """The state of a process that outlives a reload of its configuration."""

    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    metrics: Metrics = field(default_factory=Metrics)
    admission: Admission = field(default_factory=Admission)

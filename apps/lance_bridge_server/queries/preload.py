"""What is loaded before processes of queries are forked: it takes most of their start."""

from __future__ import annotations

import warnings

from . import process  # noqa: F401 - loaded for the forks

# No thread of Lance runs before the fork, which is what it warns of.
warnings.filterwarnings("ignore", "lance is not fork-safe")

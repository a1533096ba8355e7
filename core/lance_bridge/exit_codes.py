"""The exit codes of the commands: 0 where all went well, and these."""

FAILED = 1
"""The catalog or the storage refused, or failed."""
MISUSED = 2
"""The arguments are invalid; nothing was changed."""
FOUND = 3
"""A command that looks for something found it."""
INTERRUPTED = 130
"""Ctrl-C."""

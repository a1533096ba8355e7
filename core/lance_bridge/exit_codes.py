"""The exit codes of the commands, besides 0 for success."""

FAILED = 1
"""The catalog or the storage refused, or failed."""
MISUSED = 2
"""The arguments are invalid; nothing was changed."""
FOUND = 3
"""A command that looks for something found it."""
INTERRUPTED = 130
"""Ctrl-C."""

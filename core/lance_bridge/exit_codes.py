"""The exit codes of the commands, besides 0 for success."""

FAILED = 1
"""The catalog or the storage refused, or failed."""
MISUSED = 2
"""The arguments are invalid; nothing was changed."""
FOUND = 3
"""A command that looks for something found it."""
INTERRUPTED = 130
"""Ctrl-C."""
PIPE_CLOSED = 141
"""The reader of standard output ended first, as ``head`` does: what a shell reports of a program
that SIGPIPE ends."""

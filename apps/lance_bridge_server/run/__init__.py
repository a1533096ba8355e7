"""The process: its command, listeners, reloads and workers."""

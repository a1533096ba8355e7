"""Sizes that commands name in their help, which shows them without importing Lance."""

SMALL_FRAGMENT = 1024 * 1024
"""Rows below which compaction would merge a fragment with others: its default target."""

"""Changes of a table's columns: added, altered, dropped, computed, described."""

"""Builds the documentation site: ``python -m website``, or ``make docs``."""

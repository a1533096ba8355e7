"""What goes wrong with an embedded metastore, told to the person who started it."""

from __future__ import annotations


class EmbeddedError(RuntimeError):
    """An embedded metastore could not be started, or its parts could not be had."""


class JavaNotFoundError(EmbeddedError):
    """No Java on this machine runs the release asked for."""


class ArtifactsUnavailableError(EmbeddedError):
    """The jars of a release are not there and could not be fetched."""


class MetastoreStartError(EmbeddedError):
    """The server ended, or did not answer in time; the message ends with the tail of its log."""

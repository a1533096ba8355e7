"""Secrets in the settings of a session: a warning where they stand, and what makes Spark hide them.

Settings are arguments of Spark's processes, and stand in its event log and web pages. Spark hides
those whose names match its patterns, which know fewer words than secrets have; arguments of
processes are never hidden.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

from lance_namespace import LanceNamespace
from lance_namespace.errors import LanceNamespaceError

from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge.redaction import SPARK_PATTERN, is_secret
from lance_bridge.registry import implementation

from .log_redaction import STORAGE_PATTERN, redact_logs

logger = logging.getLogger(__name__)

CORE_PATTERN = "spark.redaction.regex"
_CORE_DEFAULT = "(?i)secret|password|token|access[.]?key"
_SQL_PATTERN = "spark.sql.redaction.options.regex"
_SQL_DEFAULT = "(?i)url"


def secret_settings(prefix: str, name: str, properties: Mapping[str, str]) -> list[str]:
    """Return the settings by which a catalog's secret properties are given.

    Args:
        prefix: What the settings of catalogs begin with.
    """
    try:
        kind: type[LanceNamespace] | None = implementation(properties.get("impl", ""))
    except LanceNamespaceError:
        kind = None
    secret = is_secret
    if kind is not None and issubclass(kind, LanceBridgeNamespace):
        secret = kind.config_type.is_secret
    return [f"{prefix}{name}.{key}" for key in sorted(properties) if secret(key)]


def warn_of_secrets(prefix: str, catalogs: Mapping[str, Mapping[str, str]]) -> None:
    """Log a warning where catalogs have secrets in their settings, once for the same ones."""
    for name, properties in catalogs.items():
        keys = secret_settings(prefix, name, properties)
        if keys:
            _warn_once(
                f"The settings {', '.join(keys)} hold secrets, which Spark's process arguments and "
                f"event logs may show. Name a file with {prefix}{name}.secrets.file or a function "
                f"with {prefix}{name}.secrets.provider, or use the environment"
            )


@cache
def _warn_once(text: str) -> None:
    logger.warning("%s", text)


def with_patterns(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings of a session to come whose patterns know the names of our secrets."""
    return {**settings, CORE_PATTERN: _extended(settings.get(CORE_PATTERN, _CORE_DEFAULT))}


def set_patterns(spark: Any) -> None:
    """Have a session hide our secrets: in `SET`, in plans, in its event log from here on.

    A server of Spark Connect keeps the pattern of its event log.
    """
    redact_logs()
    known = spark.conf.get(_SQL_PATTERN, _SQL_DEFAULT)
    spark.conf.set(_SQL_PATTERN, _extended(known))
    context = getattr(spark, "_jsc", None)
    if context is not None:
        conf = context.sc().conf()
        conf.set(CORE_PATTERN, _extended(conf.get(CORE_PATTERN, _CORE_DEFAULT)))


def _extended(pattern: str) -> str:
    for each in (SPARK_PATTERN, STORAGE_PATTERN):
        if each not in pattern:
            pattern = f"{pattern}|{each}"
    return pattern

"""Authorizers by name: the built-in ones, and those of installed packages."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from lance_bridge.errors import invalid, unsupported
from lance_bridge.extras import require

from .authorizer import AllowAll, Authorizer

GROUP = "lance_bridge.authorizers"
"""The group of entry points. Each is called with its options as keywords, and returns an
`lance_bridge_server.access.authorizer.Authorizer`."""


def make_authorizer(method: str, options: Mapping[str, Any]) -> Authorizer:
    """Return an authorizer.

    Args:
        method: ``none``, ``cedar``, or the name of an entry point.
        options: Keyword arguments; for ``cedar``, ``policies`` and ``check_seconds``.

    Raises:
        InvalidInputError: (13) the method is unknown, or its options are wrong.
        UnsupportedOperationError: (0) it needs an extra that is not installed.
    """
    if method == "none":
        if options:
            raise invalid(f"Authorization '{method}' takes no options")
        return AllowAll()
    if method == "cedar":
        return _cedar(options)
    found = {each.name: each for each in entry_points(group=GROUP)}
    if method not in found:
        known = ", ".join(["none", "cedar", *sorted(found)])
        raise invalid(f"Unknown authorization method '{method}': use one of {known}")
    try:
        return found[method].load()(**options)  # type: ignore[no-any-return]  # by its contract
    except (ImportError, AttributeError) as error:
        raise unsupported(f"Authorization '{method}' cannot be loaded: {error}") from error
    except (TypeError, ValueError) as error:
        raise invalid(f"Authorization '{method}': {error}") from error


def _cedar(options: Mapping[str, Any]) -> Authorizer:
    require("server", "cedarpy")
    from .policies import CedarAuthorizer  # noqa: PLC0415 - needs an extra

    unknown = options.keys() - {"policies", "check_seconds"}
    if unknown or "policies" not in options:
        raise invalid("Authorization 'cedar' requires policies, and accepts check_seconds")
    seconds = float(options.get("check_seconds", 1.0))
    return CedarAuthorizer(Path(options["policies"]).expanduser(), seconds)

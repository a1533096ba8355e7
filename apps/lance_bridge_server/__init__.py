"""lance-bridge serve: the Lance REST specification and LanceDB's remote protocol over catalogs.

`app_from_environment` creates the application for another ASGI server. It is imported on first use,
so that ``lance-bridge serve --help`` does not wait for its imports.
"""

from typing import TYPE_CHECKING, Any

import lance_bridge  # noqa: F401 - before lance_namespace, whose REST client it defers

if TYPE_CHECKING:
    from .run.server import app_from_environment

__all__ = ["app_from_environment"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .run import server  # noqa: PLC0415 - see the top of this file

    return getattr(server, name)

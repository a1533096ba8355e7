"""lance-bridge serve: the Lance REST specification and LanceDB's remote protocol over catalogs.

`app_from_environment` makes the application for another ASGI server. It is imported when it is
first used: ``lance-bridge serve --help`` needs none of what it imports.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .process.factory import app_from_environment

__all__ = ["app_from_environment"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .process import factory  # noqa: PLC0415 - see the top of this file

    return getattr(factory, name)

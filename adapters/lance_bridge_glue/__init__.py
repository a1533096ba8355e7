"""AWS Glue as a Lance namespace: ``impl=glue``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lance_bridge import extras
from lance_bridge.catalog import Catalog
from lance_bridge.errors import invalid, unsupported
from lance_bridge.namespace import LanceBridgeNamespace

from .config import GlueConfig

__all__ = ["GlueConfig", "GlueNamespace"]


class GlueNamespace(LanceBridgeNamespace):
    """A Lance namespace on the AWS Glue Data Catalog; see ``specs/glue.md``.

    Args:
        client: A Glue client of boto3 to use instead of one created from the properties. `close`
            leaves it open, its credentials are not used for storage, and the namespace cannot be
            pickled.
        **properties: The properties of :class:`GlueConfig`.
    """

    impl = "glue"
    config_type = GlueConfig

    def __init__(self, *, client: Any = None, **properties: str) -> None:
        if client is not None and not hasattr(client, "meta"):
            raise invalid("impl=glue: 'client' must be a Glue client of boto3's, not a property")
        self._client = client
        super().__init__(**properties)

    def open_catalog(self, config: GlueConfig) -> Catalog:
        extras.require(self.impl, "boto3", "botocore")
        from .catalog import GlueCatalog  # noqa: PLC0415 - needs the packages checked above

        return GlueCatalog(config, self._client)

    def __reduce__(self) -> tuple[Callable[..., LanceBridgeNamespace], tuple[Any, ...]]:
        if self._client is not None:
            raise unsupported(
                "A namespace with a given client cannot be pickled: connect by properties"
            )
        return super().__reduce__()

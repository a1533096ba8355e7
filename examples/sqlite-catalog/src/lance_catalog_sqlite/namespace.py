"""What a user sees: the properties of ``impl=sqlite``, and the namespace that they open."""

from __future__ import annotations

from pydantic import Field

from lance_bridge import Catalog, CatalogConfig, LanceBridgeNamespace

from .catalog import SqliteCatalog
from .database import Database


class SqliteConfig(CatalogConfig):
    """The properties of ``impl=sqlite``, beside those that every catalog has."""

    file: str = Field(
        alias="file",
        min_length=1,
        examples=["/data/catalog.db"],
        description="The SQLite file. It is created if it does not exist.",
    )
    lock_timeout: float = Field(
        default=30,
        alias="lock-timeout",
        ge=0,
        description="Seconds to wait for other processes that hold the file's lock.",
    )


class SqliteNamespace(LanceBridgeNamespace):
    """A Lance namespace in a SQLite file."""

    impl = "sqlite"
    config_type = SqliteConfig

    def open_catalog(self, config: SqliteConfig) -> Catalog:
        return SqliteCatalog(Database(config.file, config.lock_timeout))

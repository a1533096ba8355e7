"""One running metastore of each release, started when first asked for and shared by all tests.

Also pools of connections to them, and the least that can be asked of one.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from hmsclient.genthrift.hive_metastore.ttypes import Database

from lance_bridge.jvm import compile_classes
from lance_bridge_hive.client import ClientPool
from lance_bridge_metastore import Metastore
from lance_bridge_metastore.releases import pyspark_jars

VERSIONS = ["2.3", "3.1", "4.0", "4.1", "4.2"]
OBJECT_STORE_SCHEMES = ("s3", "s3a", "gs", "abfss", "oss")
_STUB_SOURCE = Path(__file__).with_name("StubFileSystem.java")
Connect = Callable[..., ClientPool]
"""Makes a pool behind the proxy, with these properties."""


class StubFileSystem:
    """The compiled stub file system, and the settings that make a metastore use it."""

    settings: Mapping[str, str] = {
        f"fs.{scheme}.impl": _STUB_SOURCE.stem for scheme in OBJECT_STORE_SCHEMES
    }

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        if not (directory / f"{_STUB_SOURCE.stem}.class").exists():
            compile_classes([_STUB_SOURCE], pyspark_jars(), directory)


class Metastores:
    """Metastores for one test session; a context manager that closes every one it made.

    ``directory`` keeps the compiled stub; a temporary one by default.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._temporary = None if directory else tempfile.TemporaryDirectory(prefix="servers-")
        self._directory = directory or Path(self._temporary.name if self._temporary else "")
        self._stub: StubFileSystem | None = None
        self._shared: dict[str, Metastore] = {}
        self._private: list[Metastore] = []

    @property
    def stub(self) -> StubFileSystem:
        """The stub file system, compiled when first asked for."""
        if self._stub is None:
            self._stub = StubFileSystem(self._directory / "stub-file-system")
        return self._stub

    def get(self, version: str) -> Metastore:
        """Return the running metastore that tests of this release share.

        It takes object-store locations. A test that stops it must start it again; if one left it
        down, it is started here, with its state.
        """
        metastore = self._shared.get(version)
        if metastore is None:
            metastore = self._with_stub(version, {})
            self._shared[version] = metastore
        if not metastore.is_running:
            metastore.start()
        return metastore

    def new(
        self,
        version: str,
        *,
        stub: bool = True,
        settings: Mapping[str, str] | None = None,
        directory: Path | None = None,
        port: int = 0,
    ) -> Metastore:
        """Start a metastore of the caller's own, who closes it, or else the session does.

        Without ``stub`` it is as Hive ships it: object-store locations get the MetaException
        "No FileSystem for scheme".
        """
        make = self._with_stub if stub else self._plain
        metastore = make(version, settings or {}, directory, port)
        self._private.append(metastore)
        return metastore.start()

    def close(self) -> None:
        """Close every metastore that is still running."""
        for metastore in (*self._shared.values(), *self._private):
            metastore.close()
        self._shared.clear()
        self._private.clear()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Metastores:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _with_stub(
        self,
        version: str,
        settings: Mapping[str, str],
        directory: Path | None = None,
        port: int = 0,
    ) -> Metastore:
        return Metastore(
            version,
            directory,
            port,
            extra_classpath=[self.stub.directory],
            settings={**self.stub.settings, **settings},
        )

    def _plain(
        self, version: str, settings: Mapping[str, str], directory: Path | None, port: int
    ) -> Metastore:
        return Metastore(version, directory, port, settings=settings)


def read(pool: ClientPool, name: str = "default") -> str:
    """Ask for a database; return the name in the answer."""
    database = pool.call(lambda c: c.hms.get_database(name), name="get_database", repeatable=True)
    return str(database.name)


def create(pool: ClientPool, metastore: Metastore) -> str:
    """Make a database, which must not be tried twice; return its name."""
    name = f"d{uuid.uuid4().hex}"
    record = Database(name=name, locationUri=f"{metastore.warehouse}/{name}", parameters={})
    pool.call(lambda c: c.hms.create_database(record), name="create_database", repeatable=False)
    return name

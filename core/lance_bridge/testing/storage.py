"""The files of a table, read without the catalog: on local disk, or in a store of Lance."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import lance
import pyarrow as pa
from lance.file import LanceFileSession


def local_path(location: str) -> Path | None:
    """Return the path of a location on local disk (a path or a ``file:`` URI), else None."""
    parts = urlsplit(location)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return Path(location) if not parts.scheme else None


def same_location(one: str, other: str) -> bool:
    """Return whether two spellings refer to the same location."""
    return _normal(one) == _normal(other)


def _normal(location: str) -> str:
    path = local_path(location)
    text = str(path) if path is not None else location.replace("s3a://", "s3://", 1)
    return text.rstrip("/")


class Storage:
    """Reads and writes files with the storage options that the target declares."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    @property
    def options(self) -> dict[str, str]:
        """The storage options with which Lance reads and writes."""
        return dict(self._options)

    def files(self, location: str) -> frozenset[str]:
        """Return the names of all files under a location, relative to it."""
        path = local_path(location)
        if path is None:
            return frozenset(LanceFileSession(location, self._options).list())
        return frozenset(str(f.relative_to(path)) for f in path.rglob("*") if f.is_file())

    def write(self, location: str, table: pa.Table, *, mode: str = "create") -> None:
        """Write a Lance dataset."""
        lance.write_dataset(table, location, mode=mode, storage_options=self._options)

    def ids(self, location: str) -> list[int]:
        """Return the sorted ids in the Lance dataset at a location."""
        dataset = lance.dataset(location, storage_options=self._options)
        return sorted(dataset.to_table(columns=["id"])["id"].to_pylist())

    def put(self, location: str, name: str, content: bytes) -> None:
        """Write one file."""
        path = local_path(location)
        if path is not None:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)
            return
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            LanceFileSession(location, self._options).upload_file(file.name, name)

    def get(self, location: str, name: str) -> bytes:
        """Read one file."""
        path = local_path(location)
        if path is not None:
            return (path / name).read_bytes()
        with tempfile.NamedTemporaryFile() as file:
            LanceFileSession(location, self._options).download_file(name, file.name)
            return Path(file.name).read_bytes()

    def delete(self, location: str, name: str) -> None:
        """Delete one file, which must exist."""
        path = local_path(location)
        if path is not None:
            (path / name).unlink()
            return
        LanceFileSession(location, self._options).delete_file(name)

    def remove(self, location: str) -> None:
        """Delete everything under a location, if anything exists."""
        path = local_path(location)
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)
            return
        session = LanceFileSession(location, self._options)
        for name in session.list():
            session.delete_file(name)

    def remove_empty_parents(self, location: str, name_part: str) -> None:
        """Delete the local directories around a location whose names contain ``name_part``.

        A directory that is not empty stays, and so do its parents.
        """
        path = local_path(location)
        for parent in path.parents if path is not None else ():
            if name_part not in parent.name:
                return
            try:
                parent.rmdir()
            except OSError:  # it is not empty, or was never made
                return

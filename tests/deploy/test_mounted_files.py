"""Files as Kubernetes mounts them, and changes them: it replaces a link to their directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from lance_bridge_server.authentication.key_file import ApiKeyFile
from lance_bridge_server.policies import CedarAuthorizer
from lance_bridge_server.principals import Principal

pytestmark = pytest.mark.quick

POLICY = 'permit(principal in Group::"{}", action, resource);'
TABLE = ("prod", "sales", "orders")


def mount(directory: Path, version: int, name: str, content: str, mode: int = 0o644) -> Path:
    """Write a version of a mounted file; return its path, which stays the same."""
    data = directory / f"..{version}"
    data.mkdir()
    (data / name).write_text(content, encoding="utf-8")
    (data / name).chmod(mode)
    link = directory / f"..data_{version}"
    link.symlink_to(data.name)
    link.rename(directory / "..data")
    path = directory / name
    if not path.is_symlink():
        path.symlink_to(f"..data/{name}")
    return path


def test_changed_policies_apply(tmp_path: Path) -> None:
    mount(tmp_path, 1, "lake.cedar", POLICY.format("analysts"))
    authorizer = CedarAuthorizer(tmp_path, 0.0)
    ann = Principal("ann", frozenset({"analysts"}))
    assert authorizer.check(ann, "query_table", TABLE).allowed
    mount(tmp_path, 2, "lake.cedar", POLICY.format("curators"))
    assert not authorizer.check(ann, "query_table", TABLE).allowed


def test_changed_keys_apply(tmp_path: Path) -> None:
    made = ApiKeyFile(tmp_path / "made.json")
    first, entry = made.add("ann")
    keys = ApiKeyFile(mount(tmp_path, 1, "keys.json", made.path.read_text(), 0o440))
    assert keys.find(first) is not None
    second, _ = made.add("bob")
    made.revoke(entry.id)
    mount(tmp_path, 2, "keys.json", made.path.read_text(), 0o440)
    assert keys.find(first) is None
    assert keys.find(second) is not None

"""The kit's cases of a user with a part of the rights fail where listings count as complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers.unity import UnityServer

from lance_bridge import scan
from lance_bridge.testing.case_namespace import CaseNamespace
from lance_bridge.testing.partial_rights import PartialRightsCases

from .unity_target import UnityTarget

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#what-listings-omit")]

Case = Callable[[PartialRightsCases, CaseNamespace], None]
CASES = PartialRightsCases


@pytest.fixture
def target(tmp_path: Path) -> Iterator[UnityTarget]:
    with UnityServer() as server:
        yield UnityTarget(server, str(tmp_path))


@pytest.fixture
def user(target: UnityTarget) -> Iterator[CaseNamespace]:
    user = CaseNamespace(target, target.second_user())
    yield user
    user.close()


@pytest.mark.parametrize(
    "case",
    [
        CASES.test_drop_sees_a_shared_location_in_an_unlisted_namespace,
        CASES.test_drop_sees_a_shallow_clone_in_an_unlisted_namespace,
    ],
)
def test_a_scan_that_reads_only_what_is_listed_fails(
    user: CaseNamespace, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    listed = scan.innermost_namespaces

    def forgetful(catalog: Any, parent: Any = (), unreadable: Any = None, **_: Any) -> object:
        return listed(catalog, parent, unreadable)

    monkeypatch.setattr(scan, "innermost_namespaces", forgetful)
    with pytest.raises(AssertionError, match="but the call succeeded"):
        case(CASES(), user)


def test_a_scan_that_asks_for_no_entry_by_its_name_fails(
    target: UnityTarget, user: CaseNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "entries_named_by", lambda *_: [])
    ns = CaseNamespace(target)
    with pytest.raises(AssertionError, match="but the call succeeded"):
        CASES().test_drop_keeps_the_files_of_a_table_that_the_user_may_not_see(ns, user)
    ns.close()

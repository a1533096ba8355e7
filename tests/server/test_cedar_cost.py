"""How policies are evaluated: in one call for a listing, from a set that was parsed once."""

from __future__ import annotations

import threading
from pathlib import Path

import cedarpy
import pytest
from server.policies import cedar

from lance_bridge_server.principals import Principal

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#policy-files")]

POLICIES = "\n".join(
    f'permit(principal == User::"u{each}", action in Action::"see", '
    f'resource in Namespace::"n{each}");'
    for each in range(200)
)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of questions in each call of cedarpy."""
    sizes: list[int] = []
    evaluate = cedarpy.is_authorized_batch

    def counting(requests: list[dict[str, str]], policies: object, *rest: object) -> object:
        assert isinstance(policies, cedarpy.PolicySet)
        sizes.append(len(requests))
        return evaluate(requests, policies, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(cedarpy, "is_authorized_batch", counting)
    return sizes


def test_a_listing_is_one_evaluation(tmp_path: Path, calls: list[int]) -> None:
    authorizer = cedar(tmp_path, POLICIES)
    paths = [(f"n{each % 400}", f"t{each}") for each in range(1000)]
    assert len(authorizer.filter(Principal("u7"), "list_tables", paths)) == 3
    assert calls == [1000]


def test_an_allowed_operation_is_one_evaluation(tmp_path: Path, calls: list[int]) -> None:
    assert cedar(tmp_path, POLICIES).check(Principal("u7"), "describe_table", ("n7", "t")).allowed
    assert calls == [2]


def test_decisions_of_threads_stay_apart_while_policies_change(tmp_path: Path) -> None:
    authorizer = cedar(tmp_path, POLICIES, check_seconds=0)
    wrong: list[int] = []

    def check(user: int) -> None:
        for other in range(100):
            decision = authorizer.check(Principal(f"u{user}"), "describe_table", (f"n{other}", "t"))
            if decision.allowed != (user == other):
                wrong.append(other)

    threads = [threading.Thread(target=check, args=(user,)) for user in range(8)]
    for each in threads:
        each.start()
    for number in range(5):
        new = tmp_path / "policies.new"
        new.write_text(f"// {number}\n{POLICIES}")
        new.rename(tmp_path / "policies.cedar")
    for each in threads:
        each.join()
    assert wrong == []

"""Every operation of the trait is answered in a case of the kit, or no catalog can do it.

The list comes from the trait itself: an operation that a new release of it adds fails here, until
it has a case or a reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from core.memory_catalog import MemoryNamespace

from lance_bridge.operations.compute import UNSUPPORTED
from lance_bridge.testing import inherited_operations

from .inner_pytest import HERE, run_pytest
from .memory_suite import OPERATIONS, REPORT

pytestmark = pytest.mark.servers


@dataclass(frozen=True)
class Run:
    """The suite on the catalog in memory."""

    code: int
    output: str
    answered: frozenset[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run the cases in a new process; return which operations gave answers."""
    report = tmp_path_factory.mktemp("operations") / "answered.json"
    environment = {REPORT: str(report)}
    suite = [HERE / "memory_suite.py"]
    done = run_pytest(suite, "--tb=short", environment=environment, seconds=280)
    answered = frozenset(json.loads(report.read_text())) if report.exists() else frozenset()
    return Run(done.returncode, done.stdout + done.stderr, answered)


def without_a_case(trait: Iterable[str], answered: Iterable[str]) -> list[str]:
    """Return the operations that no case has had an answer from, and no reason excuses."""
    return sorted(set(trait) - set(answered) - set(UNSUPPORTED))


def test_the_kit_passes_on_a_catalog_in_memory(run: Run) -> None:
    assert run.code == pytest.ExitCode.OK, run.output


def test_every_operation_of_the_trait_is_answered_in_a_case_or_has_a_reason(run: Run) -> None:
    assert len(OPERATIONS) >= 56
    assert without_a_case(OPERATIONS, run.answered) == []
    assert without_a_case([*OPERATIONS, "sing_to_table"], run.answered) == ["sing_to_table"]


def test_the_reasons_are_of_operations_that_exist_and_are_not_answered(run: Run) -> None:
    assert set(UNSUPPORTED) <= OPERATIONS
    assert not set(UNSUPPORTED) & run.answered
    assert inherited_operations(MemoryNamespace) == frozenset(UNSUPPORTED)

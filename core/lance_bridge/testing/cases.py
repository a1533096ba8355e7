"""What every group of cases shares: fixtures, needed features, known deviations."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pytest
from lance_namespace import ErrorCode

from .case_namespace import CaseNamespace
from .expect import answer_of
from .target import Target

_T = TypeVar("_T")
_NEEDS = "lance_bridge_needs"
_Test = TypeVar("_Test", bound=Callable[..., Any])


def needs(*names: str) -> Callable[[_Test], _Test]:
    """Skip a case, with the reason, if the target lacks a feature, an operation or a method."""

    def mark(test: _Test) -> _Test:
        setattr(test, _NEEDS, (*getattr(test, _NEEDS, ()), *names))
        return test

    return mark


_FEATURE_OF = {
    "register_table": "register",
    "rename_table": "rename",
    "create_namespace": "namespace_changes",
    "drop_namespace": "namespace_changes",
    "list_all_tables": "list_all",
}
"""Operation to the feature that it needs to succeed."""


def why_absent(target: Target, operation: str) -> str:
    """Return why the target lacks an operation; empty if it has it."""
    feature = _FEATURE_OF.get(operation)
    return target.lacks(operation) or (target.lacks(feature) if feature else "")


class Refusals:
    """Checks the results of many requests of one case, each of which must be refused.

    A request that the target declares as a deviation, ``test_case[name]``, must fail that check.
    """

    def __init__(self, target: Target, case: str) -> None:
        self._target = target
        self._case = case

    def refuse(
        self,
        calls: Mapping[str, Callable[[_T], object]],
        candidates: Collection[_T],
        *codes: ErrorCode,
        naming: str = "",
    ) -> None:
        """Require that every operation refuses every candidate.

        Args:
            calls: Operation to its call with a candidate. Operations that the target declares
                absent are skipped.
            candidates: Identifiers, or values of an option; at least one.
            codes: The expected codes.
            naming: What each message must contain, in any letter case.
        """
        complaints = {}
        for name, call in calls.items():
            if not why_absent(self._target, name):
                answers = (answer_of(call, each, codes, naming) for each in candidates)
                complaints[name] = next((text for text in answers if text), "")
        self.compare(complaints)

    def compare(self, complaints: Mapping[str, str]) -> None:
        """Require complaints about exactly the requests that the target declares as deviations.

        Args:
            complaints: Name of a request to what is wrong with its result, empty if nothing is.
        """
        if not complaints:
            pytest.skip(f"{type(self._target).__name__} declares that each operation is absent")
        declared = {n for n in complaints if f"{self._case}[{n}]" in self._target.deviations}
        wrong = {name: text for name, text in complaints.items() if text and name not in declared}
        assert not wrong, "\n".join(f"{name}: {text}" for name, text in wrong.items())
        repaired = sorted(name for name in declared if not complaints[name])
        assert not repaired, f"declared as deviations, but they pass: {repaired}"


def _names(given: str | Sequence[str]) -> Sequence[str]:
    return given.split(",") if isinstance(given, str) else given


def _full_name(case: pytest.Function) -> str:
    """Return a case's name with its own parameters, and without those of the target's fixture."""
    own = [
        str(case.callspec.params[name.strip()])
        for mark in case.iter_markers("parametrize")
        for name in _names(mark.args[0])
    ]
    return f"{case.originalname}[{'-'.join(own)}]" if own else case.originalname


class Cases:
    """Base of every group. A test module supplies the ``target`` fixture."""

    @pytest.fixture(autouse=True)
    def _declared(self, request: pytest.FixtureRequest, target: Target) -> None:
        """Skip cases of absent operations; expect cases that are declared as deviations to fail."""
        for need in getattr(request.function, _NEEDS, ()):
            reason = target.lacks(need)
            if reason:
                pytest.skip(reason)
        name, full = request.node.originalname, _full_name(request.node)
        reason = target.deviations.get(full) or target.deviations.get(name, "")
        if reason:
            request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _frozen(cls) -> Iterator[None]:
        """Keep collections of garbage, a sixth of the time, from all that is imported."""
        gc.collect()
        gc.freeze()
        yield
        gc.unfreeze()

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def inhabited(cls, target: Target) -> Iterator[CaseNamespace | None]:
        """A namespace of other tools' entries, if the target has some: the cases run beside it."""
        inhabited = None if target.lacks("inhabit") else CaseNamespace(target).inhabit()
        yield inhabited
        if inhabited is not None:
            inhabited.close()

    @pytest.fixture
    def refusals(self, request: pytest.FixtureRequest, target: Target) -> Refusals:
        """A check of the results of many requests."""
        return Refusals(target, request.node.originalname)

    @pytest.fixture
    def ns(self, target: Target, _declared: None) -> Iterator[CaseNamespace]:
        """A client and a namespace that only this case uses."""
        ns = CaseNamespace(target)
        yield ns
        ns.close()

"""The ground under every group of cases: fixtures, needed features, known deviations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pytest
from lance_namespace import ErrorCode

from .calls import Id
from .case_namespace import CaseNamespace
from .expect import answer_of
from .target import Target

_NEEDS = "lance_bridge_needs"
_Test = TypeVar("_Test", bound=Callable[..., Any])


def needs(*names: str) -> Callable[[_Test], _Test]:
    """Skip a case, saying why, where the target lacks a feature, an operation or a method."""

    def mark(test: _Test) -> _Test:
        setattr(test, _NEEDS, (*getattr(test, _NEEDS, ()), *names))
        return test

    return mark


_FEATURE_OF = {
    "register_table": "register",
    "rename_table": "rename",
    "create_namespace": "namespace_changes",
    "drop_namespace": "namespace_changes",
}
"""Operation to the feature without which it cannot be called with success."""


def why_absent(target: Target, operation: str) -> str:
    """Return why the target does not have an operation; empty if it has."""
    feature = _FEATURE_OF.get(operation)
    return target.lacks(operation) or (target.lacks(feature) if feature else "")


def skip_if_absent(target: Target, operation: str) -> None:
    """Skip a case about an operation that the target declares absent."""
    reason = why_absent(target, operation)
    if reason:
        pytest.skip(reason)


class Operations:
    """Puts one question to many operations in one case.

    An operation that the target declares absent is left out. One that it declares a deviation, as
    ``test_case[operation]``, must answer otherwise.
    """

    def __init__(self, target: Target, case: str) -> None:
        self._target = target
        self._case = case

    def refuse(
        self,
        calls: Mapping[str, Callable[[Id], object]],
        identifiers: Collection[Id],
        *codes: ErrorCode,
        naming: str = "",
    ) -> None:
        """Require that every operation refuses every identifier.

        Args:
            calls: Operation to its call with an identifier.
            identifiers: At least one.
            codes: The codes that are right.
            naming: What each message must contain, in any letter case.
        """
        expected = " or ".join(code.name for code in codes)
        absent = {name: why_absent(self._target, name) for name in calls}
        present = [name for name in calls if not absent[name]]
        if not present:
            pytest.skip(next(iter(absent.values())))
        answers = {}
        for name in present:
            given = (answer_of(calls[name], each, codes, naming) for each in identifiers)
            answers[name] = next((text for text in given if text), expected)
        deviating = [n for n in present if f"{self._case}[{n}]" in self._target.deviations]
        stale = [name for name in deviating if answers.pop(name) == expected]
        assert answers == dict.fromkeys(answers, expected)
        assert not stale, f"declared as deviations, and answer {expected}: {stale}"


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
        """Skip what the target declares absent; expect to fail what it declares deviant."""
        for need in getattr(request.function, _NEEDS, ()):
            reason = target.lacks(need)
            if reason:
                pytest.skip(reason)
        name, full = request.node.originalname, _full_name(request.node)
        reason = target.deviations.get(full) or target.deviations.get(name, "")
        if reason:
            request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))

    @pytest.fixture
    def operations(self, request: pytest.FixtureRequest, target: Target) -> Operations:
        """All operations, to be asked the same in one case."""
        return Operations(target, request.node.originalname)

    @pytest.fixture
    def ns(self, target: Target, _declared: None) -> Iterator[CaseNamespace]:
        """A client and a namespace of the case's own."""
        ns = CaseNamespace(target)
        yield ns
        ns.close()

"""The ground under every group of cases: fixtures, needed features, known deviations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pytest

from .space import Space
from .target import Target

_NEEDS = "lance_bridge_needs"
_Test = TypeVar("_Test", bound=Callable[..., Any])


def needs(*names: str) -> Callable[[_Test], _Test]:
    """Skip a case, saying why, where the target lacks a feature, an operation or a method."""

    def mark(test: _Test) -> _Test:
        setattr(test, _NEEDS, (*getattr(test, _NEEDS, ()), *names))
        return test

    return mark


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
    def space(self, target: Target, _declared: None) -> Iterator[Space]:
        """A client and a namespace of the case's own."""
        space = Space(target)
        yield space
        space.close()

"""What the command prints: the groups of cases, and the outcome of a run."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

_PACKAGE = __package__ + "."


def groups_of(case: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the groups that a case is in, outermost first; none if not the kit's."""
    module = case.__module__
    return tuple(module.removeprefix(_PACKAGE).split(".")) if module.startswith(_PACKAGE) else ()


def groups() -> Iterator[str]:
    """Yield a line for each group: its name, its number of cases, and its summary."""
    from .configured_suite import TestConfigured  # noqa: PLC0415 - pytest rewrites its asserts

    found: dict[tuple[str, ...], int] = {}
    for name in dir(TestConfigured):
        case = getattr(TestConfigured, name)
        if name.startswith("test_"):
            names = groups_of(case)
            for end in range(1, len(names) + 1):
                found[names[:end]] = found.get(names[:end], 0) + 1
    for names, count in sorted(found.items()):
        about = (sys.modules[_PACKAGE + ".".join(names)].__doc__ or "").partition("\n")[0]
        indent = "  " * (len(names) - 1)
        about = about.removeprefix("Cases: ").removeprefix("Case: ")
        yield f"{indent + names[-1]:16}{count:4}  {about}"


class Results:
    """A pytest plugin that counts the cases of one catalog by their outcome."""

    def __init__(self, catalog: str) -> None:
        self.catalog = catalog
        self.passed = 0
        self.deviations = 0
        """Cases that failed as declared."""
        self.failed: list[str] = []
        """The names of the other cases that failed."""
        self.skipped: Counter[str] = Counter()
        """Number of skipped cases by reason."""

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count one phase of a case: its setup, its call, or its teardown."""
        if report.failed:
            name = str(report.nodeid).rpartition("::")[2]
            if name not in self.failed:
                self.failed.append(name)
        elif report.skipped and hasattr(report, "wasxfail"):
            self.deviations += 1
        elif report.skipped:
            _, _, reason = report.longrepr
            self.skipped[str(reason).removeprefix("Skipped: ")] += 1
        elif report.when == "call":
            self.passed += 1

    def to_json(self) -> dict[str, object]:
        """Return the outcome for programs."""
        return {
            "catalog": self.catalog,
            "passed": self.passed,
            "failed": self.failed,
            "known_deviations": self.deviations,
            "skipped": self.skipped.total(),
            "skipped_by_reason": dict(self.skipped.most_common()),
        }

    def to_text(self) -> str:
        """Return the outcome for people: the numbers, then the reasons for skipped cases."""
        numbers = f"{self.passed} cases passed, {len(self.failed)} failed"
        if self.deviations:
            numbers += f", {self.deviations} failed as declared"
        lines = [f"{self.catalog}: {numbers}, {self.skipped.total()} skipped"]
        lines += [f"{count:6} skipped: {reason}" for reason, count in self.skipped.most_common()]
        return "\n".join(lines)

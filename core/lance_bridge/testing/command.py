"""The command that runs the kit against a configured catalog, and prints the outcome.

Everything is made in namespaces with names of this run, and removed at the end of each case. Ctrl-C
and SIGTERM end the running case, and remove what it made. `kit_options` has the options.

First it checks what a run needs: the catalog, and locations for data. Otherwise each case would
fail for the same reason, or wait for the same server.

The exit code is 0 if every case passed; 1 if the catalog or the data root cannot be used; 2 if the
options are wrong or select no case; 3 if a case failed; 130 after Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, redirect_stdout, suppress
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any
from urllib.parse import urlsplit

import lance_namespace
import pytest
from lance_namespace import ListNamespacesRequest
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    UnsupportedOperationError,
)

import lance_bridge

from .. import kit_options
from ..exit_codes import FAILED, FOUND, INTERRUPTED, MISUSED
from . import rewrite_asserts
from .calls import PREFIX, Calls, code_of
from .cases import Namespace, Storage, local_path
from .target import Features, Target, from_capabilities, inherited_operations, reasons_from, without

# -- what a run needs ------------------------------------------------------------------------------


_FAILURES = (LanceNamespaceError, OSError, RuntimeError, ValueError)
"""Errors of a client or a store that does not work."""


class PreflightError(Exception):
    """The kit cannot run here; the message says what to do."""

    def __init__(self, message: str, *, is_misuse: bool = False) -> None:
        super().__init__(message)
        self.is_misuse = is_misuse
        """Whether the options are wrong, rather than the catalog or the store."""


def check_levels(target: Target) -> None:
    """Check, without a call, that the namespaces that the kit would make can hold tables.

    Raises:
        PreflightError: they would be at another level, or namespaces cannot be made.
    """
    capabilities = getattr(target.connect(), "capabilities", None)
    if capabilities is None:
        return  # another implementation, which may have any number of levels
    reason = capabilities.no_namespace_changes
    if reason:
        raise PreflightError(
            f"the kit must create namespaces, and this catalog cannot: {reason}\n"
            "Write a Target for this catalog, with make_namespace and remove_namespace: see "
            "lance_bridge.testing."
        )
    nouns = [rule.noun for rule in capabilities.namespace_levels]
    outer = ".".join(noun.upper() for noun in nouns[:-1])
    if len(target.parent) == len(nouns) - 1:
        return
    levels = f"tables of this catalog are in a {nouns[-1]}"
    if not outer:
        raise PreflightError(
            f"{levels}, which is in no other namespace: leave out --parent", is_misuse=True
        )
    given = f"not --parent {'.'.join(target.parent)}" if target.parent else "which is missing"
    raise PreflightError(
        f"{levels}, which is in a {nouns[-2]}: name an existing {nouns[-2]} to work under, with "
        f"--parent {outer}, {given}",
        is_misuse=True,
    )


def check_catalog(target: Target) -> None:
    """List the namespaces under the target's parent.

    Raises:
        PreflightError: the catalog does not respond, or not with a list.
    """
    parent = list(target.parent)
    try:
        namespace = target.connect()
        with closing(namespace) if hasattr(namespace, "close") else nullcontext():
            namespace.list_namespaces(ListNamespacesRequest(id=parent))
    except UnsupportedOperationError:
        return  # A response too; the cases check whether it is right.
    except _FAILURES as error:
        place = f"--parent {'.'.join(parent)}" if parent else "the root"
        raise PreflightError(
            f"the catalog could not list the namespaces under {place}: {error}\n"
            "Start its server, or correct the properties (-p) and the parent (--parent)."
        ) from error


def check_data_root(target: Target) -> None:
    """Write one file under the target's ``data_root``, and remove it.

    Raises:
        PreflightError: it is neither an absolute path nor a URI, or cannot be written.
    """
    root = target.data_root
    if not _is_absolute(root):
        raise PreflightError(
            f"--data-root must be an absolute path or a URI (scheme://...), not {root!r}",
            is_misuse=True,
        )
    storage = Storage(target.storage_options)
    probe = f"{root.rstrip('/')}/{PREFIX}_probe"
    try:
        with _remove_new_directories(root):
            try:
                storage.put(probe, "probe", b"probe")
            finally:
                storage.remove(probe)
    except _FAILURES as error:
        raise PreflightError(
            f"--data-root {root} cannot be written: {error}\n"
            "Set it to a writable location, and its credentials with --storage-option KEY=VALUE."
        ) from error


def check_table(target: Target) -> None:
    """Make a namespace and a table with data in it, read it, and remove both.

    Raises:
        PreflightError: a namespace cannot be made, a table has no location, cannot be written with
            the catalog's properties or read with the target's storage options, or something stays.
    """
    parent = ".".join(target.parent) or "the root"
    try:
        ns = Namespace(target)
    except _FAILURES as error:
        raise PreflightError(
            f"no namespace can be made under {parent}: {error}\n"
            "Name a parent where that is allowed (--parent), or correct the properties (-p)."
        ) from error
    with _close_despite_interrupt(ns):
        _try_table(ns)
    _require_removed(target, ns)


def _try_table(ns: Namespace) -> None:
    try:
        table = ns.with_rows()
        location = ns.location(table)
    except UnsupportedOperationError:
        return  # as in check_catalog
    except InvalidInputError as error:
        raise PreflightError(
            f"a table without a location of its own cannot be made: {error}\n"
            "Most catalogs need a place for new tables: -p root=DIR, a path or a URI."
        ) from error
    except _FAILURES as error:
        raise PreflightError(
            f"a table cannot be made: {error}\n"
            "Name a place for new tables that can be written with -p root=DIR, and what it "
            "needs with -p storage.KEY=VALUE."
        ) from error
    try:
        ns.storage.ids(location)
    except _FAILURES as error:
        raise PreflightError(
            f"the kit cannot read the table that it made at {location}: {error}\n"
            "Set the options that reading it requires with --storage-option KEY=VALUE."
        ) from error


def _require_removed(target: Target, ns: Namespace) -> None:
    with closing(Calls(target.connect())) as api:
        left = [
            ".".join(each) for each in ns.namespaces if code_of(api.namespace_exists, each) is None
        ]
    left += [each for each in ns.locations if PREFIX in each and ns.storage.files(each)]
    if left:
        raise PreflightError(
            f"what the kit made here could not be removed again: {', '.join(left)}\n"
            "Remove it, and give the user of these properties the right to drop what it creates."
        )


@contextmanager
def _close_despite_interrupt(ns: Namespace) -> Iterator[None]:
    """Remove what was made, and continue to remove it if Ctrl-C interrupts that once."""
    try:
        yield
    finally:
        try:
            ns.close()
        except KeyboardInterrupt:
            ns.close()
            raise


@contextmanager
def _remove_new_directories(root: str) -> Iterator[None]:
    """Remove the directories at and above ``root`` that were made for it, if it is a local path."""
    path = local_path(root)
    missing = [each for each in (path, *path.parents) if not each.exists()] if path else []
    try:
        yield
    finally:
        for each in missing:
            with suppress(OSError):  # it was never made, or is in use by now
                each.rmdir()


def _is_absolute(root: str) -> bool:
    parts = urlsplit(root)
    if parts.scheme == "file":
        return not parts.netloc and parts.path.startswith("/") and len(parts.path) > 1
    return bool(parts.scheme and parts.netloc) if parts.scheme else root.startswith("/")


# -- results ---------------------------------------------------------------------------------------


_PACKAGE = __package__ + "."


def groups_of(case: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the groups that a case is in, outermost first; none if not the kit's."""
    module = case.__module__
    return tuple(module.removeprefix(_PACKAGE).split(".")) if module.startswith(_PACKAGE) else ()


def groups() -> Iterator[str]:
    """Yield a line for each group: its name, its number of cases, and its summary."""
    from .suite import TestConfigured  # noqa: PLC0415 - pytest rewrites its asserts

    cases = [each for each in dir(TestConfigured) if each.startswith("test_")]
    modules = Counter(getattr(TestConfigured, each).__module__ for each in cases)
    for name, count in sorted(modules.items()):
        about = (sys.modules[name].__doc__ or "").partition("\n")[0]
        about = about.removeprefix("Cases: ").removeprefix("Case: ")
        yield f"{name.rpartition('.')[2]:16}{count:4}  {about}"


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


# -- command ---------------------------------------------------------------------------------------


_TESTS_FAILED = int(pytest.ExitCode.TESTS_FAILED)
_DEFECTS = (TypeError, AttributeError, ImportError, LookupError, OSError, RuntimeError, ValueError)
"""Errors of the constructor of an unfinished adapter, such as for a missing method."""
_MISUSES = (int(pytest.ExitCode.USAGE_ERROR), int(pytest.ExitCode.NO_TESTS_COLLECTED))


class ConfiguredTarget(Target):
    """A catalog that ``lance_bridge.connect`` finds by name, class path or configuration."""

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self._name = name
        self._properties = dict(properties)
        self.reasons: dict[str, str] = {}
        """Missing feature to the reason."""

    def connect(self) -> lance_namespace.LanceNamespace:
        return lance_bridge.connect(self._name, self._properties)

    def lacks(self, need: str) -> str:
        """Return why ``need`` is missing, in the catalog's own words if it has some."""
        if not super().lacks(need):
            return ""
        if need in self.features.absent:
            return f"the implementation has no {need}"
        if hasattr(Target, need):
            return f"a configured catalog has no {need}: it takes a Target of your own"
        return self.reasons.get(need, f"this catalog has no {need}")


def main(arguments: Sequence[str] | None = None, program: str = kit_options.MODULE) -> int:
    """Run the kit with command-line arguments; return the exit code."""
    return run(kit_options.parse(arguments, program), program)


def run(given: argparse.Namespace, program: str = kit_options.MODULE) -> int:
    """Run the kit with options of `kit_options`; return the exit code."""
    if given.list_groups:
        print(*groups(), sep="\n")
        return 0
    with _catch_interrupts() as interrupts:
        try:
            return _run(given, program, interrupts)
        except PreflightError as error:
            print(f"{program}: {error}", file=sys.stderr)
            return MISUSED if error.is_misuse else FAILED
        except KeyboardInterrupt:
            print(f"{program}: ended before the first case", file=sys.stderr)
            return INTERRUPTED


def _run(given: argparse.Namespace, program: str, interrupts: list[int]) -> int:
    target, results = _target(given), Results(given.catalog)
    # If a program reads the result, pytest's output goes to standard error.
    output = sys.stdout if given.output == "text" else sys.stderr
    with redirect_stdout(output), tempfile.TemporaryDirectory(prefix=f"{PREFIX}_") as temporary:
        target.data_root = temporary if given.data_root is None else given.data_root
        for check in (check_levels, check_data_root, check_catalog, check_table):
            check(target)
        _announce(target)
        code = int(
            pytest.main(_pytest_arguments(given), [_plugin_for(target, interrupts), results])
        )
    if interrupts:
        return INTERRUPTED
    if code in _MISUSES:
        print(f"{program}: no case matches -k {given.select}", file=sys.stderr)
        return MISUSED
    if code not in (0, _TESTS_FAILED):
        return FAILED
    print(json.dumps(results.to_json()) if given.output == "json" else results.to_text())
    return FOUND if code else 0


def _target(given: argparse.Namespace) -> Target:
    """Return the target that the options describe.

    Raises:
        PreflightError: there is no such catalog or feature, or the properties are wrong.
    """
    target = ConfiguredTarget(given.catalog, dict(given.property))
    target.parent = tuple(given.parent)
    target.deviations = dict(given.deviation)
    target.storage_options = dict(given.storage_option)
    try:
        namespace = target.connect()
        capabilities = getattr(namespace, "capabilities", None)
        features = _features(namespace, capabilities)
    except lance_namespace.LanceNamespaceError as error:
        raise PreflightError(str(error)) from error
    except _DEFECTS as error:
        raise PreflightError(
            f"{given.catalog} cannot be made: {type(error).__name__}: {error}"
        ) from error
    try:
        target.features = without(features, *given.without)
    except ValueError as error:
        raise PreflightError(f"--without: {error}", is_misuse=True) from error
    declared = reasons_from(capabilities) if capabilities is not None else {}
    target.reasons = {**declared, **{name: f"--without {name}" for name in given.without}}
    return target


def _announce(target: Target) -> None:
    parent = ".".join(target.parent) or "the root"
    print(f"Testing {target.connect().namespace_id()}")
    print(f"Makes and removes namespaces under {parent} whose names contain {PREFIX},")
    print(f"tables in them, and files under {target.data_root} with that name.", flush=True)


def _plugin_for(target: Target, interrupts: list[int]) -> ModuleType:
    """Return a pytest plugin with the target as a fixture, and with groups as names for ``-k``.

    Args:
        interrupts: The signals of `_catch_interrupts`.
    """

    @pytest.fixture(scope="session", name="target")
    def configured_target() -> Target:
        return target

    def pytest_itemcollected(item: pytest.Item) -> None:
        if isinstance(item, pytest.Function):
            item.extra_keyword_matches.update(groups_of(item.function))

    def pytest_runtest_teardown(item: pytest.Item) -> None:
        # An interrupt in a function that Lance calls is an error of Lance to the case.
        if interrupts:
            item.session.shouldstop = "it was interrupted"

    plugin = ModuleType("lance_bridge_testing_target")
    vars(plugin).update(
        target=configured_target,
        pytest_configure=rewrite_asserts,
        pytest_itemcollected=pytest_itemcollected,
        pytest_runtest_teardown=pytest_runtest_teardown,
    )
    return plugin


def _features(namespace: lance_namespace.LanceNamespace, capabilities: Any) -> Features:
    """Return what the implementation declares, or the defaults if it declares nothing."""
    absent = inherited_operations(type(namespace))
    if capabilities is None:
        return Features(fixed_depth=False, absent=absent)
    return from_capabilities(capabilities, Features(absent=absent))


def _pytest_arguments(given: argparse.Namespace) -> list[str]:
    suite = Path(__file__).with_name("suite.py")
    arguments = [str(suite), "--rootdir", str(suite.parent), "-c", os.devnull, "-q", "-rfEX"]
    arguments += ["--import-mode=importlib", "-p", "no:cacheprovider", "--tb=short", "--no-header"]
    return arguments + (["-k", given.select] if given.select else [])


@contextmanager
def _catch_interrupts() -> Iterator[list[int]]:
    """Treat SIGTERM as Ctrl-C, and record both: pytest's exit code does not show them reliably."""
    seen: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    before = {each: signal.signal(each, interrupt) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

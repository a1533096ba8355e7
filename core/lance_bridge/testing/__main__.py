"""Run the conformance kit against a configured catalog.

    python -m lance_bridge.testing hive -p uri=thrift://metastore:9083 --data-root /mnt/tables

Everything is made in namespaces with names of this run, and removed at the end of each case. Ctrl-C
and SIGTERM end the case that runs, and remove what it made. The exit code is pytest's: 0 when every
case passed, 1 when one failed; 2 when the run was ended, or when the catalog or the place for data
cannot be used, which is looked at first.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType

import lance_namespace
import pytest

import lance_bridge

from . import rewrite_asserts
from .build import PREFIX
from .declared import from_capabilities, inherited_operations, without
from .preflight import PreflightError, check_catalog, check_data_root
from .target import Features, Target

_ENDED = 2
"""The exit code of pytest after Ctrl-C, and of argparse."""


class ConfiguredTarget(Target):
    """A catalog that ``lance_bridge.connect`` finds by name, class path or configuration."""

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self._name = name
        self._properties = dict(properties)

    def connect(self) -> lance_namespace.LanceNamespace:
        return lance_bridge.connect(self._name, self._properties)


def plugin_for(target: Target) -> ModuleType:
    """Return a plugin that gives the target to pytest as a fixture."""

    @pytest.fixture(scope="session", name="target")
    def configured_target() -> Target:
        return target

    plugin = ModuleType("lance_bridge_testing_target")
    vars(plugin).update(target=configured_target, pytest_configure=rewrite_asserts)
    return plugin


def main(arguments: Sequence[str] | None = None, *, plugins: Sequence[object] = ()) -> int:
    """Run the kit as the arguments say, with more plugins of pytest; return the exit code."""
    parser = _parser()
    given = parser.parse_args(arguments)
    target = ConfiguredTarget(given.catalog, dict(given.property))
    target.parent = tuple(given.parent.split(".")) if given.parent else ()
    target.deviations = dict(given.deviation)
    target.storage_options = dict(given.storage_option)
    try:
        target.features = without(_features(target.connect()), *given.without)
    except (ValueError, lance_namespace.LanceNamespaceError) as error:
        parser.error(str(error))
    try:
        with _sigterm_as_ctrl_c():
            return _run(target, given, plugins)
    except PreflightError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"{parser.prog}: ended before the first case", file=sys.stderr)
    return _ENDED


def _run(target: Target, given: argparse.Namespace, plugins: Sequence[object]) -> int:
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}_") as temporary:
        target.data_root = temporary if given.data_root is None else given.data_root
        check_data_root(target)
        check_catalog(target)
        parent = given.parent or "the root"
        print(f"Testing {target.connect().namespace_id()}")
        print(f"Makes and removes namespaces under {parent} whose names contain {PREFIX},")
        print(f"tables in them, and files under {target.data_root} with that name.", flush=True)
        return int(pytest.main(_pytest_arguments(given), [plugin_for(target), *plugins]))


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _features(namespace: lance_namespace.LanceNamespace) -> Features:
    """Return what the implementation declares, or the defaults where it declares nothing."""
    capabilities = getattr(namespace, "capabilities", None)
    absent = inherited_operations(type(namespace))
    if capabilities is None:
        return Features(fixed_depth=False, absent=absent)
    return from_capabilities(capabilities, Features(absent=absent))


def _pytest_arguments(given: argparse.Namespace) -> list[str]:
    suite = Path(__file__).with_name("configured_suite.py")
    arguments = [str(suite), "--rootdir", str(suite.parent), "-c", os.devnull]
    arguments += [
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        "-q",
        "-rfEX",
        "--tb=short",
        "--no-header",
    ]
    return arguments + (["-k", given.select] if given.select else [])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lance_bridge.testing",
        description="Run the conformance kit against a configured catalog.",
    )
    parser.add_argument("catalog", help="hive, dir, rest, a configured catalog, or a class path")
    parser.add_argument(
        "-p",
        "--property",
        type=_pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a property of the catalog; may be repeated",
    )
    parser.add_argument(
        "--parent", default="", metavar="A.B", help="namespace to work under; default: the root"
    )
    parser.add_argument(
        "--data-root",
        metavar="DIR",
        help="place for data of registered tables, a path or a URI; default: a temporary directory",
    )
    parser.add_argument(
        "--storage-option",
        type=_pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="what Lance needs to read and write the data; may be repeated",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="FEATURE",
        help="a feature that the catalog does not have (a field of Features); may be repeated",
    )
    parser.add_argument(
        "--deviation",
        type=_pair,
        action="append",
        default=[],
        metavar="CASE=REASON",
        help="a case that is known to fail; may be repeated",
    )
    parser.add_argument("-k", dest="select", metavar="EXPR", help="run only matching cases")
    return parser


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return key, value


if __name__ == "__main__":
    sys.exit(main())

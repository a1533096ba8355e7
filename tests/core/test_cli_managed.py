"""The command line: who manages a table's versions, and what was written past the catalog."""

from __future__ import annotations

import json
import sys

import lance
import pytest
from typer.testing import CliRunner, Result

import lance_bridge_cli as cli
from lance_bridge.exit_codes import FOUND
from lance_bridge_cli.app import app

from .building import TABLE, create
from .managing import append_past_the_catalog, insert, rows, state
from .memory_catalog import MemoryNamespace

pytestmark = [
    pytest.mark.quick,
    pytest.mark.usefixtures("able"),
    pytest.mark.spec("cli.md#managed"),
]

CLASS = f"{MemoryNamespace.__module__}.{MemoryNamespace.__qualname__}"


def run(ns: MemoryNamespace, *arguments: str, answer: str | None = None) -> Result:
    uri = f"uri={ns._properties['uri']}"
    command = ["managed", arguments[0], CLASS, ".".join(TABLE), "-p", uri]
    return CliRunner().invoke(app, [*command, *arguments[1:]], input=answer)


def test_a_table_is_converted_both_ways(namespace: MemoryNamespace) -> None:
    create(namespace, TABLE)
    begun = run(namespace, "begin")
    assert (begun.exit_code, begun.stdout) == (
        0, "eu.shop.sales.Orders: the catalog manages its versions\n"
    )  # fmt: skip
    assert state(namespace).version == 1
    ended = run(namespace, "end", "--output", "json")
    assert json.loads(ended.stdout) == {"table": "eu.shop.sales.Orders", "managed": False}
    assert rows(namespace) == [0, 1, 2]


def test_out_of_band_versions_are_listed_and_adopted(managed: MemoryNamespace) -> None:
    clean = run(managed, "check")
    assert clean.exit_code == 0
    assert "every version was committed" in clean.stdout
    append_past_the_catalog(managed, 8)
    found = run(managed, "check", "-o", "json")
    assert found.exit_code == FOUND
    report = json.loads(found.stdout)
    assert (report["versions"], report["writers"]) == ([2], [f"lance {lance.__version__}"])
    adopted = run(managed, "adopt")
    assert (adopted.exit_code, adopted.stdout) == (
        0, "eu.shop.sales.Orders: the latest version is 2\n"
    )  # fmt: skip
    assert rows(managed) == [0, 1, 2, 8]


def test_out_of_band_versions_are_discarded_after_confirmation(managed: MemoryNamespace) -> None:
    append_past_the_catalog(managed, 8)
    refused = run(managed, "discard", answer="n\n")
    assert refused.exit_code == 2  # stdin is not a terminal
    assert run(managed, "check").exit_code == FOUND
    done = run(managed, "discard", "--yes", "-o", "json")
    assert json.loads(done.stdout)["discarded"] == 1
    assert run(managed, "check").exit_code == 0


def test_quarantined_versions_are_listed(managed: MemoryNamespace) -> None:
    append_past_the_catalog(managed, 8)
    insert(managed)
    found = run(managed, "check")
    assert found.exit_code == FOUND
    [name] = json.loads(run(managed, "check", "-o", "json").stdout)["quarantined"]
    assert found.stdout == (
        f"eu.shop.sales.Orders: version 2 is quarantined ({name})\n"
        f"eu.shop.sales.Orders: written by lance {lance.__version__}\n"
    )
    assert json.loads(run(managed, "check", "-o", "json").stdout)["quarantined_versions"] == [2]


@pytest.mark.spec("cli.md#exit-codes")
def test_a_failure_is_one_message_without_a_traceback(namespace: MemoryNamespace) -> None:
    failed = run(namespace, "adopt")
    assert failed.exit_code == 1
    assert failed.stdout == ""
    assert failed.stderr.startswith("lance-bridge: ")
    assert "eu.shop.sales.Orders" in failed.stderr


@pytest.mark.parametrize("properties", [["uri"], ["=x"]])
def test_a_malformed_property_is_refused(properties: list[str]) -> None:
    options = [option for each in properties for option in ("-p", each)]
    failed = CliRunner().invoke(app, ["managed", "check", CLASS, "a.b", *options])
    assert failed.exit_code == 2
    assert "key=value" in failed.stderr


def test_without_the_extra_the_command_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)  # to Python, a package that is not installed
    monkeypatch.setattr(sys, "argv", ["lance-bridge"])
    with pytest.raises(SystemExit, match=r"pip install 'lance-bridge\[cli\]'"):
        cli.main()

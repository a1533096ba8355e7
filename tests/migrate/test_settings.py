"""The settings file of a conversion."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from lance_bridge_migrate.commands.planning import _with_settings

pytestmark = [pytest.mark.quick, pytest.mark.spec("migration.md#convert")]

GIVEN = {"name": "{table}_new", "casts": {}, "count_rows": True, "vectors": {"v": 3}}


def test_a_settings_file_gives_options_and_the_command_goes_before_it(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        "name: '{table}_file'\ncasts: {a: string}\ncount_rows: false\n"
        "tables: {sales.orders: {renames: {x: y}}}\n"
    )
    assert _with_settings(GIVEN, file) == {
        "name": "{table}_new",
        "casts": {"a": "string"},
        "count_rows": False,
        "vectors": {"v": 3},
        "tables": {"sales.orders": {"renames": {"x": "y"}}},
    }
    assert _with_settings(GIVEN, None) == GIVEN


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", ""])
def test_a_settings_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(typer.Exit):
        _with_settings(GIVEN, file)
    with pytest.raises(typer.Exit):
        _with_settings(GIVEN, tmp_path / "none.yaml")

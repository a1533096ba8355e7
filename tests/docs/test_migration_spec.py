"""``specs/migration.md`` says what the code does: types, options, levels and cases are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_bridge_migrate import Level, migration_type
from lance_bridge_migrate.migration import MIGRATION_TYPES
from lance_bridge_migrate.run import RunOptions
from lance_bridge_migrate.selection import Selection

from .operation_samples import new_namespace
from .spec_facts import DOCUMENTS

pytestmark = pytest.mark.checks

MIGRATION_SPEC = DOCUMENTS["migration"]
TEXT = MIGRATION_SPEC.path.read_text(encoding="utf-8")
SELECTING = "Selecting Tables"


def stated(title: str) -> dict[str, str]:
    """Return the options of a section's table, with their defaults."""
    rows = MIGRATION_SPEC.rows(title, "option")
    return {row[0].strip("`"): row[1].strip("`") for row in rows}


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return str(value) if value else "none"


def declared(options: Any) -> dict[str, str]:
    """Return the options of a model, with their defaults as a spec shows them."""
    return {
        name: "needed"
        if field.is_required()
        else shown(field.get_default(call_default_factory=True))
        for name, field in options.model_fields.items()
    }


def test_every_type_has_a_section_and_every_section_a_type() -> None:
    assert sorted(MIGRATION_SPEC.below("Types")) == sorted(MIGRATION_TYPES)


@pytest.mark.spec("migration.md#selecting-tables")
def test_the_options_of_every_kind_are_those_of_the_code() -> None:
    assert stated(SELECTING) == declared(Selection)
    for kind in MIGRATION_TYPES:
        options = migration_type(kind).options_type
        common = Selection.model_fields if issubclass(options, Selection) else {}
        own = {name: each for name, each in declared(options).items() if name not in common}
        assert stated(kind) == own, kind


def test_the_levels_and_the_defaults_of_a_run_are_those_of_the_code() -> None:
    levels = [row[0].strip("`") for row in MIGRATION_SPEC.rows("Verifying", "level")]
    assert levels == [each.value for each in Level]
    default = RunOptions()
    assert f"at the same time ({default.at_once})" in TEXT
    [row] = [r for r in MIGRATION_SPEC.rows("Verifying", "level") if "default" in r[1]]
    assert row[0] == f"`{default.verify.value}`"


def test_the_python_that_it_shows_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_STATE", str(tmp_path / "state"))
    tables = tmp_path / "tables"
    lance.write_dataset(pa.table({"a": [1]}), str(tables / "t.lance"))
    namespace, server = new_namespace(tmp_path / "lake")
    [snippet] = MIGRATION_SPEC.snippets("python")
    inner = next(path for path in server.namespaces if len(path) == 3)
    snippet = snippet.replace("/data/tables", str(tables)).replace('["sales"]', repr(list(inner)))
    known: dict[str, Any] = {"ns": namespace}
    exec(compile(snippet, MIGRATION_SPEC.path.name, "exec"), known)
    assert known["record"].state.value == "done"
    assert server.effects[-2:] == ["create_table", "drop_table"]

"""An entry of the configuration file that is wrong is an error for that catalog alone."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import pytest
from lance_namespace.errors import InvalidInputError

from lance_bridge.config import named_catalogs

SECRET = "s3cr3t-value"


@pytest.fixture
def yaml_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration file that the environment names; the test writes it."""
    path = tmp_path / "catalogs.yaml"
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(path))
    return path


def test_the_names_of_other_catalogs_may_be_a_list(yaml_file: Path) -> None:
    yaml_file.write_text("catalogs:\n  all: {impl: federated, catalogs: [prod, aws]}\n")
    assert named_catalogs()["all"] == {"impl": "federated", "catalogs": "prod,aws"}


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("3", "'a' must be a mapping with `impl:`"),
        ("{uri: x}", "'a' must be a mapping with `impl:`"),
        ("{impl: 3}", "'a' must be a mapping with `impl:`"),
        ("{impl: x, uri: [s3cr3t-value]}", "'uri' must be a string"),
        ("{impl: x, catalogs: [prod, 3]}", "'catalogs' must be a string"),
        ("{impl: x, uri: }", "'uri' must be a string"),
        ("{impl: x, uri: s3cr3t-value, 'uri': other}", "'uri' is duplicated in line 3"),
        ("{impl: x}\n  a: {impl: y}", "'a' is duplicated in line 4"),
    ],
)
def test_an_entry_that_is_wrong_harms_only_itself(
    yaml_file: Path, entry: str, problem: str
) -> None:
    yaml_file.write_text(f"catalogs:\n  good: {{impl: x}}\n  a: {entry}\n  last: {{impl: y}}\n")
    named = named_catalogs()
    assert sorted(named) == ["a", "good", "last"]
    assert named["good"] == {"impl": "x"}
    assert named.valid == {"good": {"impl": "x"}, "last": {"impl": "y"}}
    assert "a" in named
    with pytest.raises(InvalidInputError, match=re.escape(problem)) as caught:
        named["a"]
    assert str(yaml_file) in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))

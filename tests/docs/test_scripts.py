"""Scripts of ``bench/`` and ``demo/`` parse their options. `make test-slow` runs them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = sorted(
    f"{path.parent.name}.{path.stem}"
    for name in ("bench", "demo")
    for path in (REPOSITORY / name).glob("*.py")
    if "\ndef main(arguments: " in path.read_text(encoding="utf-8")
)


@pytest.fixture(autouse=True)
def in_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY))


def test_the_scripts_are_found() -> None:
    assert {"bench.start", "demo.run"} <= set(SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_is_imported_and_parses_its_options(
    capsys: pytest.CaptureFixture[str], script: str
) -> None:
    main = importlib.import_module(script).main
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "usage: " in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["--no-such-option"])
    assert ended.value.code == 2

"""The scripts of ``bench/`` and ``demo/`` parse their options. `make test-slow` runs them."""

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
    assert {"bench.hive", "bench.spark", "bench.migrate_data", "demo.run"} <= set(SCRIPTS)


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


def test_too_small_a_catalog_is_refused_before_it_is_started(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module("bench.glue").main(["--tables", "102", "--databases", "1"])
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert "at least 2 tables, 2 databases" in shown
    assert "starting" not in shown


def test_the_table_for_people_says_which_bars_are_missed() -> None:
    pairs = importlib.import_module("bench.pairs")
    report = importlib.import_module("bench.pairs_report")
    figures = {
        "slow": pairs.Pair([0.009], [0.002], [0.001], {"get_table": 2.0}),
        "quick": pairs.Pair([0.004], [0.002], [0.001], {"get_table": 1.0}),
    }
    steps = [pairs.Step(name, None, None, None) for name in figures]
    about = {"catalog": "C", "rows": 1, "rounds": 1, "raw_client": "r", "load_average": 0}
    shown = report.as_text(report.collect(about, steps, figures, 0))
    assert "bars missed: 2\n  slow: own_ms 6, bar 3\n  slow: calls 2, bar 1\n" in shown
    text = " ".join(shown.split())
    assert "slow 9.00 2.00 1.00 6.00 6.00..6.00 6.00 < 3 MISS 2 = 1 MISS 2 get_table" in text
    assert "quick 4.00 2.00 1.00 1.00 1.00..1.00 1.00 < 3 pass 1 = 1 pass 1 get_table" in text

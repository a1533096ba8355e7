"""Documents of ``specs/`` name tests in comments that are not rendered: each of them exists."""

from __future__ import annotations

import pytest

from .spec_facts import ALL_SPECS, REPOSITORY
from .spec_reader import Spec, functions_in, named_tests

KIT = "core/lance_bridge/testing/"
ADAPTERS = "tests/adapters/"
CATALOGS = ("hive", "glue", "unity")
LEAST = {"adapters": 6, "cli": 60, "clients": 60, "migration": 50, "spark": 100}
"""How many references some documents have at least."""

every_spec = pytest.mark.parametrize("spec", ALL_SPECS.values(), ids=ALL_SPECS)


@every_spec
def test_every_test_that_a_spec_names_exists(spec: Spec) -> None:
    references = named_tests(spec.path.read_text(encoding="utf-8"))
    missing = [(path, name) for path, name in references if not exists(path, name)]

    assert len(references) > LEAST.get(spec.name, 30)
    assert missing == []


@pytest.mark.parametrize("name", CATALOGS)
def test_a_catalogs_spec_names_no_test_of_another_catalog(name: str) -> None:
    others = tuple(f"{ADAPTERS}{other}/" for other in CATALOGS if other != name)
    references = named_tests(ALL_SPECS[name].path.read_text(encoding="utf-8"))

    assert [path for path, _ in references if path.startswith(others)] == []


def exists(path: str, name: str) -> bool:
    """Return whether a file of the tests or of the kit has a function of that name."""
    file = REPOSITORY / path
    is_test = path.startswith(("tests/", KIT)) and file.is_file()
    return is_test and name in functions_in(file)

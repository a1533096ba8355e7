"""Contents of documents and tables of properties are as ``make specs`` writes them."""

from __future__ import annotations

import pytest

from .spec_facts import REPOSITORY, SPECS, namespace_class
from .spec_reader import Spec
from .spec_writer import GENERATED, render


@pytest.mark.parametrize("name", [str(path.relative_to(REPOSITORY)) for path in GENERATED])
def test_a_document_is_as_it_is_generated(name: str) -> None:
    path = REPOSITORY / name

    assert render(path) == path.read_text(encoding="utf-8"), "run make specs"


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_spec_has_a_row_for_each_property_that_its_catalog_declares(spec: Spec) -> None:
    rows = spec.rows("Namespace Implementation Configuration Properties", "property")
    declared = namespace_class(spec.name).config_type.declared()

    assert {row[0].strip("`"): row[2] == "yes" for row in rows} == {
        each.key: each.secret for each in declared
    }

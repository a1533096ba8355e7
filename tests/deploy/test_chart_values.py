"""Values of the Helm chart: its own schema takes them, and the server reads its configuration."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from lance_bridge_server.configuration.source import SettingsSource
from lance_bridge_server.policies import CedarAuthorizer

from .chart import CHART, VALUES, load, merged, values_of_page

pytestmark = pytest.mark.quick

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS = load(CHART / "values.yaml")


def problems(values: Any) -> list[str]:
    validator = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)
    return [error.message for error in validator.iter_errors(values)]


def test_every_value_is_in_the_schema() -> None:
    assert {*DEFAULTS} == {*SCHEMA["properties"]} - {"global"}
    for name, known in SCHEMA["properties"].items():
        if known.get("additionalProperties") is False:
            assert {*DEFAULTS[name]} == {*known["properties"]}, name


@pytest.mark.parametrize("name", ["small-values.yaml", "whole-values.yaml", "of the page"])
def test_the_schema_takes_values_and_the_server_their_configuration(
    name: str, tmp_path: Path
) -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in VALUES}
    text = {**texts, "of the page": values_of_page()}[name]
    values = merged(DEFAULTS, yaml.safe_load(text))
    assert problems(values) == []
    path = tmp_path / "server.yaml"
    path.write_text(yaml.safe_dump(values["config"]), encoding="utf-8")
    settings = SettingsSource(path).read()
    assert settings.listeners[0].host == "0.0.0.0"
    assert settings.authentication
    for file, policies in values["policies"].items():
        (tmp_path / file).write_text(policies, encoding="utf-8")
        CedarAuthorizer(tmp_path / file)


@pytest.mark.parametrize(
    ("keys", "value", "problem"),
    [
        (["config", "catalogs"], {}, "non-empty"),
        (["config", "listeners"], [{"socket": "/s"}], "'host' is a required"),
        (["policies"], {"a.txt": ""}, "does not match"),
        (["secretEnvironment"], {"A": {"name": "s", "key": "k", "value": "v"}}, "unexpected"),
        (["apiKeySecret"], {"name": "s"}, "unexpected"),
        (["replicas"], "2", "not of type"),
    ],
)
def test_the_schema_refuses_mistakes(keys: list[str], value: Any, problem: str) -> None:
    values = copy.deepcopy(merged(DEFAULTS, load(VALUES[0])))
    inner = values
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    assert any(problem in each for each in problems(values)), problems(values)


def test_paths_of_secrets_in_the_configuration_are_those_that_are_mounted() -> None:
    text = (CHART / "ci" / "whole-values.yaml").read_text(encoding="utf-8")
    template = (CHART / "templates" / "deployment.yaml").read_text(encoding="utf-8")
    mounted = set(re.findall(r"mountPath: (/etc/\S+)", template))
    named = {str(Path(each).parent) for each in re.findall(r"/etc/[\w./-]+\.\w+", text)}
    assert named == mounted - {"/etc/lance-bridge/config", "/etc/lance-bridge/policies"}

"""The JSON Schema of an environment's YAML accepts what is right and refuses a misspelt key."""

from pathlib import Path

import pytest

from gymdata.environments import registry, yaml
from gymdata.environments.schema import environment_schema

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")


def test_it_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(environment_schema())


@pytest.mark.parametrize("name", registry.builtin_names())
def test_every_built_in_environment_is_valid(name):
    jsonschema.validate(yaml.load(Path(registry.BUILTIN, name, "config.yaml")).plain(), environment_schema())


@pytest.mark.parametrize("key", ["num_repeat", "licence"])
def test_a_misspelt_key_of_a_data_set_is_not(key):
    config = yaml.load(registry.BUILTIN / "math/config.yaml").plain()
    config["math_with_judge_simple_agent"]["responses_api_agents"]["simple_agent"]["datasets"][0][key] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(config, environment_schema())

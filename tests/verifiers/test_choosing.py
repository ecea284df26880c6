"""Which verifier scores a row."""

from importlib.metadata import EntryPoint

import pytest

from gymdata.environments import registry
from gymdata.errors import UsageError
from gymdata.verifiers import make, resources_server_of, verifier_for
from gymdata.verifiers.mcqa import Mcqa
from gymdata.verifiers.tool_call import SingleToolCall
from tests.verifiers.misbehaving import Misbehaving


@pytest.fixture(scope="module")
def environments():
    return [registry.load(name) for name in registry.builtin_names()]


def test_a_row_names_its_agent_by_agent_ref_or_task_source(environments):
    for named in ({"agent_ref": {"type": "responses_api_agents", "name": "mcqa_simple_agent"}}, {"agent_ref": "mcqa_simple_agent"},
                  {"task_source": "mcqa_simple_agent"}, {"task_source": "mcqa"}):  # fmt: skip
        assert verifier_for(environments, named) == Mcqa(None)


def test_a_row_that_names_none_belongs_to_the_only_agent(environments):
    assert verifier_for(registry.load("single_tool_call"), {}) == SingleToolCall()
    with pytest.raises(UsageError, match="names no agent"):
        verifier_for(environments, {})


def test_an_agent_that_is_not_there_is_named():
    with pytest.raises(UsageError, match="'other_agent' is none of mcqa_simple_agent"):
        verifier_for(registry.load("mcqa"), {"agent_ref": {"name": "other_agent"}})


def test_the_options_are_those_of_the_configuration():
    environment = registry.load("mcqa", ["mcqa.resources_servers.mcqa.grading_mode=lenient_boxed"])
    assert verifier_for(environment, {}) == Mcqa("lenient_boxed")
    assert resources_server_of(environment, {})[0] == "mcqa"


def test_every_builtin_environment_has_a_verifier(environments):
    assert all(verifier_for(environment, {}).name for environment in environments)


def test_one_of_ones_own_is_found_by_entry_point(monkeypatch):
    entry = EntryPoint("my_server", "tests.verifiers.misbehaving:Misbehaving", "gymdata.verifiers")
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group, name: [entry] if (group, name) == (entry.group, entry.name) else []
    )
    assert isinstance(make("my_server", {}), Misbehaving)
    with pytest.raises(UsageError, match="no verifier for the resources server 'another'"):
        make("another", {})

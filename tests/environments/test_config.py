"""NeMo Gym configuration becomes an environment, or an error that names every wrong entry with its line."""

from pathlib import Path

import pytest

from gymdata.environments.config import load_config
from gymdata.environments.model import Environment
from gymdata.environments.problems import ConfigProblems
from gymdata.errors import ConfigError, UsageError

AGENT = """\
res:
  resources_servers:
    math_with_judge: {entrypoint: app.py, domain: math}
agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: res}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
"""
EXAMPLE = "      - {name: ex, type: example, jsonl_fpath: ex.jsonl}\n"
DATASETS = "agent.responses_api_agents.simple_agent.datasets"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NEMO_GYM_EXTRA_ROOTS", raising=False)


def load(text: str, *overrides: str, **files: str) -> Environment:
    """The environment of `c.yaml`; further files by stem."""
    for stem, content in {"c": text, **files}.items():
        Path(f"{stem}.yaml").write_text(content)
    return load_config(["c.yaml"], overrides)


def problems(text: str, *overrides: str, **files: str) -> dict[str, tuple[int, str]]:
    """Key path -> (line, message with hint) of every problem."""
    with pytest.raises(ConfigProblems) as caught:
        load(text, *overrides, **files)
    lines = [str(problem).split(": ", 2) for problem in caught.value.problems]
    return {path: (problem.place.line, message) for problem, (_, path, message) in zip(caught.value.problems, lines, strict=True)}


def entry(**keys) -> str:
    return AGENT + "      - {" + ", ".join(f"{key}: {value}" for key, value in keys.items()) + "}\n"


class TestEntries:
    def test_an_entry_knows_its_place_its_instance_and_its_agent(self):
        environment = load(AGENT + EXAMPLE)
        (dataset,) = environment.datasets()
        assert (str(dataset.place), dataset.instance, environment.agent_of(dataset)) == ("c.yaml:11", "agent", "agent")

    def test_the_metrics_header_is_nemo_gyms(self):
        """Measured: the head of the file that NeMo Gym 0.7.0 writes."""
        text = entry(
            name="t", type="train", jsonl_fpath="t.jsonl", license="MIT", source="{type: huggingface, repo_id: a/b, split: train}"
        )
        (dataset,) = load(text).datasets()
        assert list(dataset.metrics_header().items()) == [
            ("name", "t"),
            ("type", "train"),
            ("jsonl_fpath", "t.jsonl"),
            ("num_repeats", 1),
            ("source", {"type": "huggingface", "repo_id": "a/b", "artifact_fpath": None}),
            ("gitlab_identifier", None),
            ("huggingface_identifier", {"repo_id": "a/b", "artifact_fpath": None}),
            ("license", "MIT"),
        ]

    def test_the_header_of_a_benchmark_is_nemo_gyms(self):
        text = entry(name="b", type="benchmark", jsonl_fpath="b.jsonl", prepare_script="p.py")
        assert load(text).datasets()[0].metrics_header() == {
            "name": "b",
            "type": "benchmark",
            "jsonl_fpath": "b.jsonl",
            "prepare_script": "p.py",
            "prompt_config": None,
            "num_repeats": 1,
            "prepare_dependencies": [],
        }

    @pytest.mark.parametrize("legacy", ["gitlab_identifier", "huggingface_identifier"])
    def test_one_old_identifier_becomes_the_source(self, legacy):
        values = {
            "gitlab_identifier": "{dataset_name: d, version: 0.0.1, artifact_fpath: f}",
            "huggingface_identifier": "{repo_id: a/b, artifact_fpath: f}",
        }
        text = entry(name="e", type="example", jsonl_fpath="f", **{legacy: values[legacy]})
        source = load(text).datasets()[0].source
        assert source is not None
        assert source.type == legacy.removesuffix("_identifier")

    def test_both_old_identifiers_stay_and_make_no_source(self):
        text = entry(
            name="e",
            type="example",
            jsonl_fpath="f",
            gitlab_identifier="{dataset_name: d, version: 0.0.1, artifact_fpath: f}",
            huggingface_identifier="{repo_id: a/b}",
        )
        (dataset,) = load(text).datasets()
        assert dataset.source is None
        assert dataset.gitlab_identifier is not None
        assert dataset.huggingface_identifier is not None

    def test_an_spdx_licence_becomes_nemo_gyms_string(self):
        (dataset,) = load(entry(name="t", type="train", jsonl_fpath="t", license="CC-BY-4.0")).datasets()
        assert dataset.license == "Creative Commons Attribution 4.0 International"

    @pytest.mark.parametrize(
        ("keys", "key", "says"),
        [
            ({"num_repeat": 4}, "num_repeat", "did you mean `num_repeats`"),
            ({"num_repeats": 0}, "num_repeats", "at least 1"),
            ({"num_repeats": "yes"}, "num_repeats", "YAML reads `yes` as true"),
            ({"num_repeats": "x"}, "num_repeats", "whole number"),
            ({"num_repeats": 1.5}, "num_repeats", "whole number"),
            ({"type": "trian"}, "type", "did you mean `train`"),
            ({"name": "no"}, "name", "YAML reads `no` as false"),
            ({"license": "Apache 2"}, "license", "Apache 2.0"),
            ({"source": "{type: hugginface, repo_id: a/b}"}, "source", "did you mean `huggingface`"),
            ({"source": "{type: huggingface, repo_id: a/b, artefact: f}"}, "source.artefact", "did you mean `artifact_fpath`"),
            ({"source": "{repo_id: a/b}"}, "source", "needs a `type`"),
            ({"source": "a/b"}, "source", "must be a mapping"),
            ({"start_idx": 5, "end_idx": 5}, "", "leaves no row"),
            ({"start_idx": -1}, "start_idx", "at least 0"),
            ({"prompt_config": "none.yaml"}, "prompt_config", "no file none.yaml"),
            ({"jsonl_fpath": "'${nope}'"}, "jsonl_fpath", "has no `nope`"),
        ],
    )
    def test_a_wrong_entry_is_reported_at_its_line_with_its_key(self, keys, key, says):
        found = problems(entry(**{"name": "e", "type": "example", "jsonl_fpath": "f", **keys}))
        assert list(found) == [f"{DATASETS}[0]" + (f".{key}" if key else "")]
        (line, message), *_ = found.values()
        assert line == 11
        assert says in message

    def test_all_wrong_entries_are_reported_at_once(self):
        text = (
            AGENT
            + "      - name: a\n        type: train\n        jsonl_fpath: f\n      - type: example\n        num_repeat: 1\n      - 5\n"
        )
        found = problems(text)
        assert {path.removeprefix(DATASETS): line for path, (line, _) in found.items()} == {
            "[0]": 11,
            "[1].name": 14,
            "[1].jsonl_fpath": 14,
            "[1].num_repeat": 15,
            "[2]": 16,
        }

    def test_a_number_that_yaml_reads_in_its_own_way_is_a_warning(self):
        environment = load(entry(name="e", type="example", jsonl_fpath="f", num_repeats="010"))
        assert environment.datasets()[0].num_repeats == 8
        assert "YAML reads `010` as 8" in environment.warnings[0]

    def test_a_prompt_works_on_any_type(self):
        text = entry(name="t", type="train", jsonl_fpath="t", license="MIT", prompt_config="p.yaml")
        prompt = load(text, p="user: '{q}'").datasets()[0].prompt
        assert prompt is not None
        assert prompt.fields == ("q",)

    def test_a_wrong_prompt_is_reported_at_its_own_line(self):
        text = entry(name="t", type="train", jsonl_fpath="t", license="MIT", prompt_config="p.yaml")
        assert problems(text, p="# hi\nuser: '{q.x}'")["user"][0] == 2


class TestServers:
    def test_data_sets_may_stand_under_a_resources_server(self):
        text = (
            "r:\n  resources_servers:\n    x:\n      entrypoint: a\n      domain: math\n      datasets:\n" + EXAMPLE +
            "a:\n  responses_api_agents:\n    s: {entrypoint: a, resources_server: {type: resources_servers, name: r}}\n"
        )  # fmt: skip
        environment = load(text)
        (dataset,) = environment.datasets()
        assert (dataset.instance, environment.agent_of(dataset)) == ("r", "a")
        two = load(
            text + "b:\n  responses_api_agents:\n    s: {entrypoint: a, resources_server: {type: resources_servers, name: r}}\n"
        )
        with pytest.raises(ConfigError, match=r"c.yaml:7: .*more than one"):
            two.agent_of(two.datasets()[0])

    def test_the_agent_key_picks_one_of_several_agents(self):
        agents = "".join(
            f"{name}:\n  responses_api_agents:\n    s: {{entrypoint: a, resources_server: {{type: resources_servers, name: r}}}}\n"
            for name in "ab"
        )
        dataset = "{name: e, type: example, jsonl_fpath: f, agent: b}"
        environment = load(f"r:\n  resources_servers:\n    x: {{entrypoint: a, domain: math, datasets: [{dataset}]}}\n" + agents)
        assert environment.agent_of(environment.datasets()[0]) == "b"

    def test_data_sets_under_a_model_are_an_error(self):
        found = problems("m:\n  responses_api_models:\n    v:\n      entrypoint: a\n      datasets:\n" + EXAMPLE)
        assert found["m.responses_api_models.v.datasets"][0] == 5

    @pytest.mark.parametrize(
        ("text", "path", "says"),
        [
            ("r:\n  resources_servers:\n    x: {entrypoint: a}\n", "r.resources_servers.x.domain", "required"),
            ("r:\n  resources_servers:\n    x: {entrypoint: a, domain: maths}\n", "r.resources_servers.x.domain", "did you mean `math`"),
            ("r:\n  resource_servers:\n    x: {entrypoint: a}\n", "r.resource_servers", "did you mean `resources_servers`"),
            ("r:\n  resources_servers: {x: {}, y: {}}\n", "r.resources_servers", "exactly one"),
            ("r:\n  resources_servers: {x: {}}\n  responses_api_agents: {y: {}}\n", "r", "2 server types"),
            ("r:\n  resources_servers: {x: 5}\n", "r.resources_servers.x", "must be a mapping"),
            ("r:\n  responses_api_agents: {x: {datasets: {}}}\n", "r.responses_api_agents.x.datasets", "must be a list"),
            ("r:\n  responses_api_agents: {x: {datasets: [{name: e, type: example, jsonl_fpath: f}]}}\n", "r.responses_api_agents.x.entrypoint", "required"),
        ],
    )  # fmt: skip
    def test_a_wrong_server_is_reported(self, text, path, says):
        found = problems(text)
        assert says in found[path][1]

    def test_a_reference_to_nothing_is_an_error_with_the_nearest_name(self):
        found = problems((AGENT + EXAMPLE).replace("name: res}", "name: ress}"))
        line, message = found["agent.responses_api_agents.simple_agent.resources_server.name"]
        assert (line, "did you mean `res`" in message) == (8, True)

    def test_a_model_that_is_not_defined_is_only_a_warning(self):
        environment = load((AGENT + EXAMPLE).replace("policy_model", "judge"))
        assert "judge" in environment.warnings[0]

    def test_settings_and_plain_mappings_are_no_servers(self):
        environment = load(AGENT + EXAMPLE + "head_server: {host: x}\nmine: {n: 1}\ndry_run: true\n")
        assert [instance.name for instance in environment.instances if instance.name != "policy_model"] == ["res", "agent"]

    def test_extra_keys_of_a_body_are_allowed(self):
        assert load((AGENT + EXAMPLE).replace("domain: math", "domain: math, verified: false, anything: [1]")).datasets()


class TestComposition:
    def test_later_files_win_and_lists_replace(self):
        Path("b.yaml").write_text(
            "agent: {responses_api_agents: {simple_agent: {datasets: [{name: b, type: example, jsonl_fpath: b}]}}}\n"
        )
        Path("a.yaml").write_text(AGENT + EXAMPLE)
        assert [dataset.name for dataset in load_config(["a.yaml", "b.yaml"]).datasets()] == ["b"]
        assert [dataset.name for dataset in load_config(["b.yaml", "a.yaml"]).datasets()] == ["ex"]

    def test_an_includer_wins_over_what_it_includes_and_env_yaml_over_both(self):
        inner = "n: 1\nm: 1\nk: 1\n"
        text = (
            AGENT + "      - {name: '${n}${m}${k}', type: example, jsonl_fpath: f}\n" + "config_paths: [inner.yaml]\nm: 2\nk: 2\n"
        )
        assert load(text, inner=inner, env="k: 3\n").datasets()[0].name == "123"

    def test_overrides_win_over_everything(self):
        assert load(AGENT + EXAMPLE + "n: 1\n", "++n=5", f"++{DATASETS}=[{{name: o, type: example, jsonl_fpath: f, num_repeats: '${{n}}'}}]").datasets()[
            0
        ].num_repeats == 5  # fmt: skip

    def test_an_override_may_reach_into_a_list(self):
        assert load(AGENT + EXAMPLE, f"++{DATASETS}.0.num_repeats=4").datasets()[0].num_repeats == 4

    def test_an_override_beside_a_list_is_an_error(self):
        with pytest.raises(ConfigError, match="picks no item"):
            load(AGENT + EXAMPLE, f"++{DATASETS}.7.num_repeats=4")

    def test_an_override_that_is_wrong_says_so_instead_of_a_line(self):
        with pytest.raises(ConfigProblems, match=r"the override \+\+agent"):
            load(AGENT + EXAMPLE, f"++{DATASETS}.0.num_repeats=0")

    def test_files_may_be_named_in_env_yaml(self):
        Path("c.yaml").write_text(AGENT + EXAMPLE)
        Path("env.yaml").write_text("config_paths: [c.yaml]\n")
        assert load_config([]).datasets()

    def test_a_list_on_a_mapping_is_an_error(self):
        with pytest.raises(ConfigError, match="cannot replace"):
            load(AGENT + EXAMPLE, "++agent=[1]")

    def test_a_circle_of_includes_is_read_once(self):
        assert load(AGENT + EXAMPLE + "config_paths: [d.yaml]\n", d="config_paths: [c.yaml]\n").datasets()

    def test_an_instance_may_have_a_number_for_a_name(self):
        (dataset,) = load(AGENT.replace("agent:", "123:", 1) + EXAMPLE).datasets()
        assert dataset.instance == "123"

    def test_a_file_of_any_size_is_read_only_to_the_limit(self):
        with pytest.raises(ConfigError, match="/dev/zero: has more than 1,048,576 bytes"):
            load_config(["/dev/zero"])

    def test_a_missing_file_names_where_it_was_looked_for_and_who_includes_it(self):
        with pytest.raises(ConfigError, match=r"^the configuration file nope\.yaml was not found"):
            load_config(["nope.yaml"])
        with pytest.raises(ConfigError, match=r"c\.yaml:2: the configuration file nope\.yaml was not found"):
            load("config_paths:\n- nope.yaml\n" + AGENT + EXAMPLE)

    def test_inheriting_moves_copying_keeps_and_delete_key_removes(self):
        text = AGENT + EXAMPLE + "moved:\n  _inherit_from: agent\n"
        environment = load(text)
        assert [instance.name for instance in environment.instances if instance.name != "policy_model"] == ["res", "moved"]
        copied = "_copy: agent.responses_api_agents.simple_agent, _delete_key: model_server"
        environment = load(AGENT + EXAMPLE + f"second: {{responses_api_agents: {{simple_agent: {{{copied}}}}}}}\n")
        assert list(environment.instances[-1].references) == ["resources_server"]
        assert len(load(AGENT + EXAMPLE + "second: ${copy:agent}\n").datasets()) == 2
        assert load(AGENT + EXAMPLE + "second: ${inherit_from:agent}\n").datasets()[0].instance == "second"

    @pytest.mark.parametrize(
        "text",
        [
            "a: ${copy:nope}\n",
            "a: {_inherit_from: b.c}\nb: {d: 1}\n",
            "a: {_inherit_from: a}\n",
            "a: {_delete_key: x, _copy: b}\nb: {}\n",
        ],
    )
    def test_a_directive_that_leads_nowhere_is_an_error(self, text):
        assert problems(text)["a"][0] == 1

    def test_values_left_open_are_all_named_with_what_fills_them(self):
        found = problems(AGENT + "      - {name: '???', type: example, jsonl_fpath: '???'}\n")
        assert {path: line for path, (line, _) in found.items()} == {f"{DATASETS}[0].name": 11, f"{DATASETS}[0].jsonl_fpath": 11}
        assert load(AGENT + "      - {name: '???', type: example, jsonl_fpath: f}\n", f"++{DATASETS}.0.name=e").datasets()

    def test_environment_variables_resolve_in_entries(self, monkeypatch):
        monkeypatch.setenv("ROWS", "/rows")
        monkeypatch.setenv("N", "3")
        text = entry(name="e", type="example", jsonl_fpath="'${oc.env:ROWS}/x.jsonl'", num_repeats="'${oc.env:N}'")
        (dataset,) = load(text).datasets()
        assert (dataset.jsonl_fpath, dataset.num_repeats) == ("/rows/x.jsonl", 3)

    def test_what_no_data_set_needs_may_stay_unresolved(self):
        assert load((AGENT + EXAMPLE).replace("domain: math", "domain: math, key: '${oc.env:SURELY_NOT_SET}'")).datasets()

    def test_a_bad_override_is_a_usage_error(self):
        with pytest.raises(UsageError):
            load(AGENT + EXAMPLE, "nonsense")


class TestPaths:
    def test_rows_are_looked_for_in_extra_roots_then_here_then_beside_the_yaml(self, tmp_path, monkeypatch):
        (tmp_path / "sub").mkdir()
        (tmp_path / "extra").mkdir()
        (tmp_path / "sub/c.yaml").write_text(AGENT + EXAMPLE)
        found = []
        for place in ("", "sub/", "", "extra/"):
            if found:
                (tmp_path / place / "ex.jsonl").write_text("")
            if place == "extra/":
                monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path / "extra"))
            found.append(load_config(["sub/c.yaml"]).datasets()[0].path)
        assert found == [Path("ex.jsonl"), Path("sub/ex.jsonl"), Path("ex.jsonl"), tmp_path / "extra/ex.jsonl"]


class TestSecrets:
    def test_secrets_never_print(self):
        text = (AGENT + EXAMPLE).replace(
            "domain: math", "domain: math, api_key: hunter2, tokens: [hunter2]"
        ) + "hf_organization: me\n"
        environment = load(text, "+wandb_api_key=hunter2", env="hf_token: hunter2\n")
        assert "hunter2" not in repr(environment) + str(environment.config) + str(environment.settings)
        secret = environment.secret("hf_token")
        assert secret is not None
        assert secret.get_secret_value() == "hunter2"
        assert environment.settings["hf_organization"] == "me"

    def test_a_secret_may_come_from_the_environment(self, monkeypatch):
        monkeypatch.setenv("HF_TOKEN", "hunter2")
        secret = load(AGENT + EXAMPLE).secret("hf_token")
        assert secret is not None
        assert secret.get_secret_value() == "hunter2"
        monkeypatch.delenv("HF_TOKEN")
        assert load(AGENT + EXAMPLE).secret("hf_token") is None

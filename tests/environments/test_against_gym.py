"""The same configurations through NeMo Gym itself, where GYMDATA_GYM_PYTHON names a Python that has nemo-gym 0.7.0."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from gymdata.environments import registry
from gymdata.environments.config import load_config
from gymdata.errors import GymdataError

GYM = os.environ.get("GYMDATA_GYM_PYTHON", "")
pytestmark = pytest.mark.skipif(not GYM, reason="GYMDATA_GYM_PYTHON does not name a Python with nemo-gym")

ASK = """
import contextlib, io, json, sys, warnings
warnings.simplefilter("ignore")
from omegaconf import DictConfig, OmegaConf
from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig as Config
answers = []
for paths in json.load(sys.stdin):
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            initial = OmegaConf.merge(Config.NO_MODEL_GLOBAL_CONFIG_DICT, DictConfig({"config_paths": paths}))
            settings = Config(initial_global_config_dict=initial, skip_load_from_cli=True, skip_load_from_dotenv=True, offline=True)
            parser = GlobalConfigDictParser()
            servers = parser.filter_for_server_instance_configs(parser.parse(settings))
        hidden = {"agent", "taskset"}
        prepare = {"prepare_script", "prepare_dependencies"}
        answers.append([[s.name, d.model_dump(mode="json", exclude=hidden | (set() if d.type == "benchmark" else prepare))]
                        for s in servers for d in s.datasets or []])
    except Exception as error:
        answers.append(type(error).__name__)
print(json.dumps(answers))
"""

SERVER = "entrypoint: a, domain: math"
ROW = "name: e, type: example, jsonl_fpath: f"
FILES = {
    "plain.yaml": f"r: {{resources_servers: {{x: {{{SERVER}, datasets: [{{{ROW}}}]}}}}}}\n",
    "later.yaml": "r: {resources_servers: {x: {datasets: [{name: later, type: example, jsonl_fpath: g}]}}}\n",
    "including.yaml": "config_paths: [plain.yaml]\nr: {resources_servers: {x: {domain: other, extra: 1}}}\n",
    "moved.yaml": "config_paths: [plain.yaml]\nq: {_inherit_from: r, extra: 1}\n",
    "copied.yaml": "config_paths: [plain.yaml]\nq: '${copy:r}'\n",
    "deleted.yaml": "config_paths: [plain.yaml]\nq: {resources_servers: {x: {_copy: r.resources_servers.x, _delete_key: datasets}}}\n",
    "open.yaml": f"r: {{resources_servers: {{x: {{{SERVER}, other: '???'}}}}}}\n",
    "no_licence.yaml": f"r: {{resources_servers: {{x: {{{SERVER}, datasets: [{{name: e, type: train, jsonl_fpath: f}}]}}}}}}\n",
    "no_domain.yaml": f"r: {{resources_servers: {{x: {{entrypoint: a, datasets: [{{{ROW}}}]}}}}}}\n",
    "bad_repeats.yaml": f"r: {{resources_servers: {{x: {{{SERVER}, datasets: [{{{ROW}, num_repeats: 0}}]}}}}}}\n",
    "twice.yaml": "a: 1\na: 2\n",
    "list.yaml": "r: [1]\n",
}
CASES = [
    *([name] for name in FILES if name != "later.yaml"),  # alone it is no server to NeMo Gym, and an error to us
    ["plain.yaml", "later.yaml"],
    ["later.yaml", "plain.yaml"],
    ["including.yaml", "later.yaml"],
    ["plain.yaml", "list.yaml"],
    ["moved.yaml", "copied.yaml"],
    ["nope.yaml"],
    *([str(registry.BUILTIN / name / "config.yaml")] for name in registry.builtin_names()),
]


def test_nemo_gym_sees_the_same_data_sets_and_refuses_the_same_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NEMO_GYM_EXTRA_ROOTS", raising=False)
    for name, text in FILES.items():
        Path(name).write_text(text)
    asked = subprocess.run([GYM, "-c", ASK], input=json.dumps(CASES), capture_output=True, text=True, check=True)
    answers = json.loads(asked.stdout.splitlines()[-1])
    for case, answer in zip(CASES, answers, strict=True):
        if isinstance(answer, str):
            with pytest.raises(GymdataError):
                load_config(case, env_yaml=None)
        else:
            ours = [[dataset.instance, dataset.metrics_header()] for dataset in load_config(case, env_yaml=None).datasets()]
            assert ours == answer, case

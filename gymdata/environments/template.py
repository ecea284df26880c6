"""What `gymdata envs init` writes: a working environment to edit, with its prompt, example rows and test."""

from __future__ import annotations

import json
from pathlib import Path

from gymdata.environments.prompt import Prompt, apply

_CONFIG = """\
# A NeMo Gym environment. `gymdata envs show {name}` prints what it amounts to.
{name}:
  resources_servers:
    {name}:
      entrypoint: app.py
      domain: other  # math, coding, agent, knowledge, instruction_following, long_context, safety, games, translation, e2e, rlhf, other

{name}_simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: {name}}}
      model_server: {{type: responses_api_models, name: policy_model}}
      datasets:
      - name: example
        type: example
        jsonl_fpath: {name}/example.jsonl  # from the working directory, or from the folder of this file
      # A train or validation data set needs a licence; with a source it can be downloaded:
      # - name: train
      #   type: train
      #   jsonl_fpath: {name}/train.jsonl
      #   license: Apache-2.0
      #   num_repeats: 1
      #   source: {{type: huggingface, repo_id: OWNER/NAME, artifact_fpath: train.jsonl}}

# What gymdata knows beyond NeMo Gym, which ignores this block.
gymdata:
  description: Sums, until you say what {name} is about.
  prompt: {name}/prompt.yaml
  fields:
    question: {{type: string, description: "What is asked."}}
    expected_answer: {{type: string, description: "What the verifier compares the answer with."}}
"""

_PROMPT = """\
# How the input of {name} rows is made from their fields. Literal braces are doubled.
user: |-
  Answer the question. Give the answer, and nothing else, on the last line.

  {{question}}
"""

_TEST = '''\
"""The rows of {name} are valid, and its configuration is in order."""

import subprocess
import sys


def gymdata(*arguments):
    return subprocess.run([sys.executable, "-m", "gymdata.cli.main", *arguments], capture_output=True, text=True, check=False)


def test_configuration():
    shown = gymdata("envs", "show", {config!r})
    assert shown.returncode == 0, shown.stderr


def test_example_rows():
    checked = gymdata("validate", {rows!r})
    assert checked.returncode == 0, checked.stdout + checked.stderr
'''

_SUMS = ((2, 3), (10, 7), (25, 25), (48, 14), (120, 5))


def files(name: str, folder: Path) -> dict[Path, str]:
    """Path -> text of each file of a new environment; the YAML goes into `folder`, the rest into `folder/NAME`."""
    prompt = Prompt(user="Answer the question. Give the answer, and nothing else, on the last line.\n\n{question}")
    rows = [{"question": f"What is {a} plus {b}?", "expected_answer": str(a + b)} for a, b in _SUMS]
    examples = "".join(json.dumps(apply(row, prompt)) + "\n" for row in rows)
    config, inside = folder / f"{name}.yaml", folder / name
    return {
        config: _CONFIG.format(name=name),
        inside / "prompt.yaml": _PROMPT.format(name=name),
        inside / "example.jsonl": examples,
        inside / f"test_{name}.py": _TEST.format(name=name, config=str(config), rows=str(inside / "example.jsonl")),
    }

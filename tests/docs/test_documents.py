"""Documents tell the truth: every command is in one, every command in one exists, and the examples do what they show."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gymdata.cli import main as cli
from tests.export.cases import rollout, save
from tests.rollouts.test_foreign import ANSWER, RESULT
from tests.servers.fixtures import OWNER
from tests.servers.gitlab import GitLab
from tests.servers.hub import Hub

ROOT = Path(__file__).parents[2]
DOCUMENTS = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
}


@dataclass(frozen=True)
class Example:
    """A command of a document, and the lines that it is shown to print."""

    command: str
    shown: tuple[str, ...]


def examples(text: str) -> Iterator[Example]:
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            yield Example(command, tuple(line for line in shown if line.strip()))


def calls(text: str) -> Iterator[list[str]]:
    """What follows `gymdata` in the examples, where it is one plain command."""
    for example in examples(text):
        words = shlex.split(example.command, comments=True)
        if words[0] == "gymdata" and not {"|", "&&", ">", ";"} & set(words):
            yield words[1:]


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_is_documented(command: str) -> None:
    assert any(re.search(rf"gymdata {command}\b", text) for text in DOCUMENTS.values())


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_examples_are_calls_that_there_are(document: str) -> None:
    for words in calls(DOCUMENTS[document]):
        cli._parser(words).parse_args(words)  # exits, with what is wrong, if it cannot be


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_and_options_in_the_text_are_those_that_there_are(document: str) -> None:
    for span in re.findall(r"`gymdata ([^`]+)`", DOCUMENTS[document]):
        command, *words = span.split()
        assert command in cli.COMMANDS, span
        options = [word.split("=")[0] for word in words if word.startswith("--")]
        if options:
            known = helped(command, *[word for word in words[:1] if command in ("envs", "registry", "rollouts")])
            assert [option for option in options if not re.search(rf"{option}\b", known)] == [], span


def test_make_help_shows_each_command_to_the_end() -> None:
    told = subprocess.run(["make", "help"], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    targets = re.findall(r"^([a-z]+):.*## (.*)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert [(name, what) for name, what in targets if not re.search(rf"^  {name} +{re.escape(what)}$", told, re.MULTILINE)] == []


def helped(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gymdata.cli.main", *words, "--help"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return done.stdout


def user(text: str) -> dict:
    return {"input": [{"role": "user", "content": text}]}


def for_the_readme(folder: Path, hub: Hub) -> dict[str, str]:
    rows = [
        {"responses_create_params": user(f"What is {number} + 2?"), "expected_answer": str(number + 2)} for number in range(20)
    ]
    rows[2]["responses_create_params"]["tools"] = [
        {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}}
    ]
    lines = [json.dumps(row) for row in rows]
    lines[16] = lines[16].replace('"18"', r'"3\sqrt{2}"')
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")
    return {}


def for_the_hub(folder: Path, hub: Hub) -> dict[str, str]:
    rows = [ROOT / f"fixtures/math/{split}.jsonl" for split in ("train", "validation")]
    hub.add_repo("nvidia/Nemotron-RL-math-OpenMathReasoning", {path.name: path for path in rows})
    hub.add_repo("acme/Nemotron-RL-math-math", {path.name: path for path in rows})
    fixtures = (ROOT / "fixtures/math/example.jsonl").read_text().splitlines()
    (folder / "my_validation.jsonl").write_text("\n".join(fixtures) + "\n")
    (folder / "train.jsonl").write_bytes(rows[0].read_bytes())
    gitlab = GitLab("glpat-docs")
    return {"HF_TOKEN": OWNER, "MLFLOW_TRACKING_URI": gitlab.uri, "MLFLOW_TRACKING_TOKEN": "glpat-docs"}


def for_exports(folder: Path, hub: Hub) -> dict[str, str]:
    rows = [rollout(task, index, float((task + index) % 4 == 0)) for task in range(5) for index in range(4)]
    rows[3] |= {"mask_sample": True}
    (folder / "rollouts").mkdir()
    save(folder / "rollouts" / "math.jsonl", *rows)
    save(folder / "train.jsonl", *({key: row[key] for key in ("responses_create_params", "agent_ref")} for row in rows))
    (folder / "results.jsonl").write_text(json.dumps(RESULT) + "\n")
    for seed in range(2):
        (folder / f"output-rs{seed}.jsonl").write_text(json.dumps(ANSWER) + "\n")
    return {}


SETTINGS: dict[str, Callable[[Path, Hub], dict[str, str]]] = {
    "README.md": for_the_readme,
    "docs/export.md": for_exports,
    "docs/hub.md": for_the_hub,
}
"""Documents whose examples are run, and what makes the folder in which they are."""


def plain(line: str) -> str:
    """A line without what differs from run to run: numbers, digests, the server's address, the width of columns."""
    line = re.sub(r"https?://[^/ ]+", "URL", line)
    line = re.sub(r"\b[0-9a-f]{8,}(…|\b)", "DIGEST", line)
    return re.sub(r"\s+", " ", re.sub(r"[\d.,]*\d", "0", line)).strip()


def is_printed(shown: str, printed: list[str]) -> bool:
    """Whether a shown line is among those printed; what an ellipsis stands for may be anything."""
    parts = [re.escape(plain(part)) for part in re.split(r"…|\.\.\.", re.sub(r"\b[0-9a-f]{8,}…", "12345678", shown))]
    return any(re.fullmatch(r".*".join(parts), plain(line)) for line in printed)


@pytest.mark.parametrize("document", SETTINGS)
def test_the_examples_do_what_they_show(document: str, hub: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    settings = SETTINGS[document](folder, hub)
    binary = tmp_path / "bin"
    binary.mkdir()
    (binary / "gymdata").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gymdata.cli.main "$@"\n')
    (binary / "gymdata").chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{binary}:{os.environ['PATH']}", **settings}
    for example in examples(DOCUMENTS[document]):
        if not example.command.startswith("gymdata "):
            continue
        done = subprocess.run(
            ["bash", "-c", example.command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        printed = (done.stdout + done.stderr).splitlines()
        expected = 1 if any(re.search(r" GD\d{3} error ", line) for line in example.shown) else 0
        assert done.returncode == expected, (example.command, done.stderr)
        missing = [line for line in example.shown if not is_printed(line, printed)]
        assert missing == [], (example.command, printed)

"""What may not leave: unvalidated rows, stale statistics, forbidden licenses, credentials, rows that no verifier can score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gymdata.errors import UsageError
from gymdata.publish.dataset import Dataset, load_dataset
from gymdata.publish.gates import objections
from gymdata.publish.secrets import Detector, detectors, find_secrets
from tests.publish.conftest import ENVIRONMENT, row

Prepare = Callable[..., Dataset]


def codes(dataset: Dataset, **options: bool) -> list[str]:
    return [one.finding.code for one in objections(dataset, **options)]


def test_a_sound_dataset_may_leave(prepare: Prepare) -> None:
    assert codes(prepare(train=[row("a"), row("b")])) == []


def test_rows_that_were_touched_after_validation_may_not(prepare: Prepare) -> None:
    dataset = prepare(train=[row("a")])
    (dataset.directory / "train.jsonl").write_bytes(row("b") + b"\n")
    assert "GD701" in codes(dataset)


def test_rows_are_judged_again_whatever_the_manifest_says(prepare: Prepare) -> None:
    dataset = prepare(train=[row("a"), b'{"question": "?", "expected_answer": "4"}'])
    (one,) = objections(dataset)
    assert (one.file, one.finding.code, one.finding.line) == ("train.jsonl", "GD701", 2)
    assert "1 errors, first GD201" in one.finding.message


def test_numbers_that_are_not_those_of_the_rows_may_not(prepare: Prepare) -> None:
    dataset = prepare(train=[row("a"), row("b c")])
    (split,) = dataset.splits
    metrics = {**split.metrics, "Number of examples": 3}
    (one,) = objections(replace(dataset, splits=(replace(split, metrics=metrics),)))
    assert (one.file, one.finding.code) == ("train_metrics.json", "GD702")
    assert "Number of examples: 3 there, 2 now" in one.finding.message


@pytest.mark.parametrize("stale", [False, True])
def test_a_stale_metrics_file_beside_a_source_may_not(tmp_path: Path, monkeypatch, stale: bool) -> None:
    from gymdata.environments import registry
    from gymdata.prepare import prepare

    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jsonl").write_bytes(b"".join(row(f"{number}?") + b"\n" for number in range(5)))
    environment = registry.load("math")
    instances = []
    for instance in environment.instances:
        entries = [one for one in instance.datasets if one.type == "train"]
        changed = [one.model_copy(update={"jsonl_fpath": "mine.jsonl", "num_repeats": 3}) for one in entries]
        bound = [one.bound(instance.name, one.place, Path("mine.jsonl")) for one in changed]
        instances.append(replace(instance, datasets=tuple(bound)))
    environment = replace(environment, instances=tuple(instances), builtin=False)
    prepare([environment], tmp_path / "out")
    if stale:
        sidecar = tmp_path / "mine_metrics.json"
        sidecar.write_text(sidecar.read_text().replace('"Number of examples": 15', '"Number of examples": 5'))
    assert codes(load_dataset(tmp_path / "out", environment)) == (["GD702"] if stale else [])


def test_a_directory_that_was_never_prepared_is_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_bytes(row("a"))
    with pytest.raises(UsageError, match="no prepared dataset"):
        load_dataset(tmp_path, ENVIRONMENT)


@pytest.mark.parametrize(
    ("license", "refused"),
    [
        ("MIT", False),
        ("Creative Commons Attribution 4.0 International", False),
        ("NVIDIA Evaluation Dataset License Agreement", False),
        ("NVIDIA Internal Use Only, Do Not Distribute", True),
        ("TBD", True),
    ],
)
def test_the_license_decides(prepare: Prepare, license: str, refused: bool) -> None:
    assert codes(prepare(license=license, train=[row("a")])) == (["GD703"] if refused else [])


def test_a_license_that_is_named_anew_settles_a_question_but_lifts_no_prohibition(prepare: Prepare) -> None:
    open_question = prepare(license="TBD", train=[row("a")])
    assert codes(load_dataset(open_question.directory, ENVIRONMENT, license="mit")) == []
    forbidden = prepare(license="NVIDIA Internal Use Only, Do Not Distribute", train=[row("a")])
    assert codes(load_dataset(forbidden.directory, ENVIRONMENT, license="mit")) == ["GD703"]


def test_splits_under_different_licenses_keep_them_all(prepare: Prepare) -> None:
    dataset = prepare(train=[row("a")], validation=[row("b")])
    entries = [
        {"type": "train", "license": "MIT"},
        {"type": "validation", "license": "TBD"},
        {"type": "example", "license": "CC0-1.0"},
    ]
    manifest = dataset.manifest.model_copy(update={"config": entries})
    (dataset.directory / "manifest.json").write_bytes(manifest.to_json())
    again = load_dataset(dataset.directory, ENVIRONMENT)
    assert again.licenses == ("MIT", "TBD") and codes(again) == ["GD703"]


def test_train_rows_need_what_their_verifier_reads(prepare: Prepare) -> None:
    bare = b'{"responses_create_params": {"input": "a"}}'
    (one,) = objections(prepare(train=[row("a"), bare, bare]))
    assert (one.finding.code, one.finding.line, one.finding.message) == ("GD705", 2, "2 rows lack 'expected_answer'")
    assert codes(prepare(name="other", validation=[bare])) == []


def test_rows_of_environments_collated_together_need_what_their_own_verifier_reads(prepare: Prepare) -> None:
    of_mcqa = row("b", agent_ref={"type": "responses_api_agents", "name": "mcqa_simple_agent"})
    dataset = prepare(train=[row("a"), of_mcqa])
    together = replace(dataset, manifest=dataset.manifest.model_copy(update={"environments": ("math", "mcqa")}))
    assert [one.finding.message for one in objections(together)] == ["1 rows lack 'options'"]


def test_an_empty_split_is_pointless(prepare: Prepare) -> None:
    assert "GD707" in codes(prepare(train=[]))


SECRETS = {
    "hugging face": "hf_" + "AbCdEfGhIj" * 3 + "AbCd",
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "github": "ghp_" + "a1" * 18,
    "private key": "-----BEGIN RSA " + "PRIVATE KEY-----",
    "nvidia": "nvapi-" + "aB3_" * 16,
    "slack": "xoxb-" + "123456789012-1234567890123-" + "abcdefghijklmnopqrstuvwx",
}


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
def test_a_credential_is_found_on_its_line_and_not_repeated(prepare: Prepare, secret: str) -> None:
    dataset = prepare(train=[row("a"), row(f"my token is {secret}, do not tell"), row("c")])
    (one,) = objections(dataset)
    assert (one.finding.code, one.finding.line) == ("GD704", 2)
    assert secret not in str(one)
    assert codes(dataset, accept_secrets=True) == []


ASCII = st.characters(codec="ascii")


@pytest.mark.parametrize("detector", detectors(), ids=lambda one: f"{one.name}-{one.literal.decode()}")
def test_whatever_a_pattern_matches_is_searched_for(detector: Detector) -> None:
    @settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
    @given(st.from_regex(detector.pattern, alphabet=ASCII), st.text(max_size=9))
    def check(secret: str, around: str) -> None:
        chunk = f"{around} {secret} {around}".encode()
        text = chunk.decode()
        expected = [match.start() for match in detector.pattern.finditer(text)]
        assert list(detector.starts(chunk, chunk.lower(), text)) == expected

    check()


def test_mathematics_code_and_prose_hold_no_credentials() -> None:
    data = Path(__file__).parents[2].parent / "shared" / "data"
    if not data.is_dir():
        pytest.skip("needs ../shared: real rows")
    for path in sorted(data.glob("*.jsonl")):
        assert list(find_secrets(path)) == [], path


def test_lines_are_counted_alike_by_any_number_of_processes(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    plain, secret = row("x" * 900) + b"\n", row(f"my token is {SECRETS['github']}") + b"\n"
    path.write_bytes(plain * 7_000 + secret + plain * 3_000 + secret)
    assert [one.line for one in find_secrets(path, 2)] == [one.line for one in find_secrets(path)] == [7_001, 10_002]

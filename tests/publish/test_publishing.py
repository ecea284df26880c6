"""Publishing: one commit or nothing, never twice, never over somebody else's work, and read back row by row."""

from __future__ import annotations

import errno
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gymdata.errors import DataError, ExternalError, UsageError
from gymdata.publish.dataset import Dataset
from gymdata.publish.huggingface import Published, Stale, send
from gymdata.publish.plan import Plan, Target, planned, repository_name
from gymdata.publish.verify import verify
from gymdata.sources.hub import Credentials, Denied
from gymdata.sources.huggingface import fetch
from tests.publish.conftest import row
from tests.servers.fixtures import OTHER, OWNER, READER
from tests.servers.hub import Hub

Prepare = Callable[..., Dataset]
REPO = "acme/Nemotron-RL-math-sums"
ROWS = [
    row("2+2?"),
    row("ratio?", "0.6", scores=[0.6, 1e-12, -0.12345678901234567], note=None, day="2024-01-02"),
    row("list?", "007", big=9007199254740993, mixed="1"),
    row("é \u2028 ?", "x", mixed=2.5),
]


def publish(dataset: Dataset, token: str | None = OWNER, **target: object) -> tuple[Plan, Published]:
    wanted = Target(**{"repo_id": REPO, "create_pr": True, **target})  # type: ignore[arg-type]
    with planned(dataset, wanted, Credentials(token)) as plan:
        return plan, send(plan, Credentials(token))


def test_a_stranger_publishes_through_one_pull_request(hub: Hub, prepare: Prepare) -> None:
    hub.add_repo(REPO)
    dataset = prepare(train=ROWS, validation=ROWS[:1])
    _, done = publish(dataset, OTHER, message="Add sums", description="Made by hand")
    (pull,) = hub.open_pull_requests(REPO)
    assert (done.revision, done.pull_request, done.sent) == ("refs/pr/1", 1, True)
    assert done.url == f"{hub.url}/datasets/{REPO}/discussions/1"
    assert (pull.title, pull.comments, pull.author) == ("Add sums", ["Made by hand"], "bob")
    commit = hub.repos[REPO].at("refs/pr/1")
    assert commit is not None and commit.parent == hub.repos[REPO].refs["main"], "one commit on top of main"
    assert sorted(commit.tree) == sorted(
        ["README.md"]
        + [f"{split}{end}" for split in ("train", "validation") for end in (".jsonl", "_metrics.json", "_statistics.json")]
        + [f"data/{split}-00000-of-00001.parquet" for split in ("train", "validation")]
    )
    assert not hub.repos[REPO].head.tree, "main is untouched"


def test_what_is_published_comes_back_row_by_row(hub: Hub, prepare: Prepare, tmp_path: Path) -> None:
    dataset = prepare(train=ROWS, validation=ROWS[2:])
    plan, done = publish(dataset, create_pr=False)
    assert verify(REPO, done.commit, plan.splits, Credentials(OWNER)).rows == {"train": 4, "validation": 2}
    train, _ = fetch(REPO, tmp_path / "back", credentials=Credentials(OWNER))
    assert train.path.read_bytes() == dataset.splits[0].path.read_bytes()


def test_rows_with_odd_keys_and_numbers_come_back(hub: Hub, prepare: Prepare) -> None:
    odd = {
        "": 1,
        "a.b": {"c.d": [1, {"x": None}]},
        "a/b": "x",
        "é ": "y",
        "label": "z",
        "image": "http://x",
        "`|": True,
        "_id": 3,
    }
    rows = [row("a", **odd, huge=1e300, nul="a\0b", none=[[]]), row("b", **odd, huge=-1e300, nul="", none=[[1]])]
    plan, done = publish(prepare(train=rows), create_pr=False)
    assert verify(REPO, done.commit, plan.splits, Credentials(OWNER)).rows == {"train": 2}


def test_a_number_that_datasets_cannot_read_is_named(hub: Hub, prepare: Prepare) -> None:
    with pytest.raises(DataError, match=r"train\.jsonl: row 2, key 'ids': a number"):
        publish(prepare(train=[row("a"), row("b", ids=[2**70])]))


def test_a_row_that_changed_on_the_way_is_named(hub: Hub, prepare: Prepare, tmp_path: Path) -> None:
    dataset = prepare(train=ROWS)
    _, done = publish(dataset, create_pr=False)
    other = tmp_path / "other.jsonl"
    other.write_bytes(b"\n".join([*ROWS[:2], row("list?", "7", big=9007199254740993, mixed="1"), ROWS[3]]))
    with pytest.raises(DataError, match="row 3 "):
        verify(REPO, done.commit, {"train": other}, Credentials(OWNER))


def test_a_second_run_has_nothing_to_do(hub: Hub, prepare: Prepare) -> None:
    hub.add_repo(REPO)
    dataset = prepare(train=ROWS)
    _, first = publish(dataset, OTHER)
    plan, second = publish(dataset, OTHER)
    assert plan.nothing_to_do and not second.sent
    assert (second.url, second.commit) == (first.url, first.commit)
    hub.merge(hub.repos[REPO], hub.users[OWNER], hub.repos[REPO].discussions[0])
    plan, third = publish(dataset, OTHER)
    assert plan.nothing_to_do and not third.sent
    assert len(hub.repos[REPO].discussions) == 1


def test_a_full_disk_is_said_and_nothing_is_sent(hub: Hub, prepare: Prepare, monkeypatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "train-0.parquet")

    hub.add_repo(REPO)
    monkeypatch.setattr("gymdata.publish.plan.write_parquet", full)
    with pytest.raises(ExternalError, match=r"train-0\.parquet: No space left on device") as error:
        publish(prepare(train=ROWS))
    assert "TMPDIR" in error.value.hint and not hub.repos[REPO].head.tree


def test_a_plan_alone_sends_nothing(hub: Hub, prepare: Prepare) -> None:
    with planned(prepare(train=ROWS), Target(REPO, create_pr=True), Credentials(OWNER)) as plan:
        assert [file.state for file in plan.files] == ["new"] * 5
        assert not plan.exists
        assert plan.diff.splits[0].added == 4
    assert REPO not in hub.repos
    assert all(request.line.startswith("GET") for request in hub.requests)


def test_an_open_pull_request_can_be_added_to(hub: Hub, prepare: Prepare) -> None:
    hub.add_repo(REPO)
    publish(prepare(train=ROWS), OTHER)
    shutil.rmtree(Path(prepare(train=ROWS).directory))
    _, done = publish(prepare(validation=ROWS[:2]), OTHER, revision="1")
    assert (done.revision, len(hub.repos[REPO].discussions)) == ("refs/pr/1", 1)
    commit = hub.repos[REPO].at("refs/pr/1")
    assert commit is not None and {"train.jsonl", "validation.jsonl"} <= set(commit.tree)
    card = hub.read(REPO, "README.md", "refs/pr/1").decode()
    assert "### train" in card and "### validation" in card, "statistics of both"
    assert "data/train-*-of-*.parquet" in card and "data/validation-*-of-*.parquet" in card


def test_a_branch_with_what_main_holds_can_be_made(hub: Hub, prepare: Prepare) -> None:
    dataset = prepare(train=ROWS)
    publish(dataset, create_pr=False)
    plan, done = publish(dataset, create_pr=False, revision="release")
    assert not plan.nothing_to_do and (done.revision, done.sent) == ("release", True)
    assert hub.repos[REPO].refs["release"] == hub.repos[REPO].refs["main"]
    plan, done = publish(dataset, revision="another", create_pr=True)
    assert plan.nothing_to_do and not done.sent and not hub.open_pull_requests(REPO)


def test_a_stranger_is_told_that_a_branch_cannot_be_made(hub: Hub, prepare: Prepare) -> None:
    hub.add_repo(REPO)
    with pytest.raises(Denied, match="leave --revision out"):
        publish(prepare(train=ROWS), OTHER, revision="mine")
    with pytest.raises(Denied, match="you may not make it"):
        publish(prepare(train=ROWS), OTHER, repo_id="acme/other")


def test_the_origin_of_a_split_stays_when_another_is_published(hub: Hub, prepare: Prepare) -> None:
    publish(prepare(train=ROWS), create_pr=False)
    publish(prepare(name="other", license="CC0-1.0", validation=ROWS[:1]), create_pr=False)
    card = hub.read(REPO, "README.md").decode()
    assert card.index("train: validated, measured") < card.index("validation: validated, measured")
    assert "license:\n- mit\n- cc0-1.0\n" in card


def test_a_new_branch_is_made_for_a_revision_that_is_none_yet(hub: Hub, prepare: Prepare) -> None:
    hub.add_repo(REPO, {"LICENSE": b"MIT"})
    _, done = publish(prepare(train=ROWS), create_pr=False, revision="next")
    assert done.revision == "next"
    assert "train.jsonl" in hub.repos[REPO].commits[hub.repos[REPO].refs["next"]].tree
    assert "train.jsonl" not in hub.repos[REPO].head.tree


def test_splits_that_are_there_keep_their_rows_under_new_columns(hub: Hub, prepare: Prepare, tmp_path: Path) -> None:
    rows = [row("a", "1"), row("b", "2")]
    hub.add_repo(REPO, {"train.jsonl": b"".join(one + b"\n" for one in rows)})
    plan, done = publish(prepare(validation=[row("c", "3", level=2)]), create_pr=False)
    old = tmp_path / "old.jsonl"
    old.write_bytes(b"\n".join(rows))
    assert verify(REPO, done.commit, {**plan.splits, "train": old}, Credentials(OWNER)).rows == {"validation": 1, "train": 2}


def test_many_rows_go_into_several_tables_and_old_ones_go(hub: Hub, prepare: Prepare, tmp_path: Path, monkeypatch) -> None:
    from gymdata.publish import parquet

    monkeypatch.setattr(parquet, "SHARD_BYTES", 400)
    monkeypatch.setattr(parquet, "GROUP_BYTES", 100)
    rows = [row(f"{number}?") for number in range(9)]
    plan, done = publish(prepare(train=rows), create_pr=False)
    tables = [path for path in hub.repos[REPO].head.tree if path.endswith(".parquet")]
    assert len(tables) == 3
    assert verify(REPO, done.commit, plan.splits, Credentials(OWNER)).rows == {"train": 9}
    (back,) = fetch(REPO, tmp_path / "back", credentials=Credentials(OWNER))
    assert back.files == ("train.jsonl",), "the canonical bytes, not the tables"
    plan, done = publish(prepare(train=rows[:2]), create_pr=False)
    assert [path for path in hub.repos[REPO].head.tree if path.endswith(".parquet")] == ["data/train-00000-of-00001.parquet"]
    assert verify(REPO, done.commit, plan.splits, Credentials(OWNER)).rows == {"train": 2}


def test_the_text_of_the_maintainers_survives(hub: Hub, prepare: Prepare) -> None:
    card = b"---\npretty_name: Our sums\ntags: [ours]\nlanguage: [de]\n---\n# Sums\n\nWritten by us.\n"
    hub.add_repo(REPO, {"README.md": card})
    publish(prepare(train=ROWS), create_pr=False)
    first = hub.read(REPO, "README.md").decode()
    assert "pretty_name: Our sums" in first and "- ours" in first and "- de" in first and "Written by us." in first
    hub.commit(REPO, {"README.md": first.replace("Written by us.", "Rewritten.").encode() + b"\nAnd below.\n"})
    publish(prepare(train=ROWS[:2]), create_pr=False)
    second = hub.read(REPO, "README.md").decode()
    assert "Rewritten." in second and second.endswith("And below.\n") and second.count("gymdata:begin") == 1


def test_a_commit_made_in_between_is_not_overwritten(hub: Hub, prepare: Prepare) -> None:
    hub.add_repo(REPO)
    dataset = prepare(train=ROWS)
    with planned(dataset, Target(REPO), Credentials(OWNER)) as plan:
        hub.commit(REPO, {"train.jsonl": b"{}\n"})
        with pytest.raises(Stale) as stale:
            send(plan, Credentials(OWNER))
    assert stale.value.changed == ("train.jsonl",)
    assert hub.read(REPO, "train.jsonl") == b"{}\n"


def test_a_commit_made_at_the_last_moment_is_not_overwritten_either(hub: Hub, prepare: Prepare) -> None:
    hub.add_repo(REPO)
    with planned(prepare(train=ROWS), Target(REPO), Credentials(OWNER)) as plan:
        hub.before.append(
            lambda line: "/commit/" in line and "theirs" not in hub.repos[REPO].head.tree and hub.commit(REPO, {"theirs": b"x"})
        )
        with pytest.raises(Stale, match="theirs"):
            send(plan, Credentials(OWNER))
    assert list(hub.repos[REPO].head.tree) == ["theirs"]


@pytest.mark.parametrize("token", [READER, OTHER, None])
def test_without_rights_nothing_happens_and_the_remedy_is_said(hub: Hub, prepare: Prepare, token: str | None) -> None:
    hub.add_repo(REPO)
    with pytest.raises(Denied) as denied:
        publish(prepare(train=ROWS), token, create_pr=False)
    assert "token" in str(denied.value) or "HF_TOKEN" in str(denied.value)
    assert not hub.repos[REPO].head.tree


def test_who_is_not_logged_in_is_told_so_though_the_dataset_is_public(hub: Hub, prepare: Prepare) -> None:
    hub.add_repo(REPO)
    with pytest.raises(Denied, match="not logged in"):
        publish(prepare(train=ROWS), None)
    assert not [request.line for request in hub.requests if request.line.startswith("POST") and "paths-info" not in request.line]


def test_a_dataset_joins_a_collection_once(hub: Hub, prepare: Prepare) -> None:
    hub.collections["acme/sums-1"] = []
    for _ in range(2):
        publish(prepare(train=ROWS), create_pr=False, collection="acme/sums-1")
    assert hub.collections["acme/sums-1"] == [REPO]


def test_a_collection_that_is_none_is_said_before_anything_is_sent(hub: Hub, prepare: Prepare) -> None:
    with pytest.raises(ExternalError, match="no collection acme/none-1"):
        publish(prepare(train=ROWS), collection="acme/none-1")
    assert REPO not in hub.repos


def test_a_collection_of_others_is_said_after_the_pull_request_was_made(hub: Hub, prepare: Prepare) -> None:
    hub.add_repo(REPO)
    hub.collections["acme/sums-1"] = []
    with pytest.raises(ExternalError, match=r"discussions/1.*not added to the collection"):
        publish(prepare(train=ROWS), OTHER, collection="acme/sums-1")
    assert len(hub.open_pull_requests(REPO)) == 1


def test_a_new_repository_is_private_unless_told_otherwise(hub: Hub, prepare: Prepare) -> None:
    publish(prepare(train=ROWS))
    publish(prepare(train=ROWS), repo_id="acme/open", private=False)
    assert (hub.repos[REPO].private, hub.repos["acme/open"].private) == (True, False)


def test_rows_that_stand_there_under_other_names_are_compared(hub: Hub, prepare: Prepare) -> None:
    card = b"---\nconfigs:\n- config_name: default\n  data_files:\n  - {split: train, path: 'raw/*.jsonl'}\n---\n"
    hub.add_repo(REPO, {"README.md": card, "raw/a.jsonl": ROWS[0] + b"\n", "raw/b.jsonl": row("theirs") + b"\n"})
    with planned(prepare(train=ROWS), Target(REPO), Credentials(OWNER)) as plan:
        (split,) = plan.diff.splits
    assert (split.before, split.after, split.added, split.removed) == (2, 4, 3, 1)


def test_a_card_that_cannot_be_read_is_named(hub: Hub, prepare: Prepare) -> None:
    hub.add_repo(REPO, {"README.md": b"---\nlicense: [\n---\n"})
    with pytest.raises(DataError, match=REPO) as error:
        publish(prepare(train=ROWS))
    assert "mend the card on the Hub" in error.value.hint


def test_a_card_whose_files_are_missing_is_caught_before_sending(hub: Hub, prepare: Prepare) -> None:
    card = b"---\nconfigs:\n- config_name: extra\n  data_files:\n  - split: train\n    path: extra/*.parquet\n---\n"
    hub.add_repo(REPO, {"README.md": card})
    with pytest.raises(DataError, match=r"extra/\*\.parquet"):
        publish(prepare(train=ROWS))
    assert all(request.line.startswith(("GET", "HEAD", "POST /api/datasets/" + REPO + "/paths-info")) for request in hub.requests)


@pytest.mark.parametrize(
    ("when", "how"), [("before", "cut"), ("after", "cut"), ("before", 500), ("after", 500), ("before", 429), ("after", 503)]
)
def test_each_request_failing_once_still_ends_in_one_pull_request(
    hub: Hub, prepare: Prepare, tmp_path: Path, when: str, how
) -> None:
    dataset = prepare(train=ROWS)
    hub.add_repo(REPO)
    publish(dataset, OTHER)
    total = len(hub.requests)
    expected = hub.repos[REPO].at("refs/pr/1")
    assert expected is not None
    for nth in range(1, total + 1):
        fresh(hub, tmp_path)
        hub.fail(how, nth=nth, when=when)
        publish(dataset, OTHER)
        (pull,) = hub.open_pull_requests(REPO)
        commit = hub.repos[REPO].at(f"refs/pr/{pull.num}")
        assert commit is not None and commit.tree == expected.tree, f"request {nth}"


@pytest.mark.parametrize("when", ["before", "after"])
def test_each_request_failing_for_good_leaves_nothing_or_all_and_a_rerun_completes(
    hub: Hub, prepare: Prepare, tmp_path: Path, when: str
) -> None:
    dataset = prepare(train=ROWS)
    hub.add_repo(REPO)
    publish(dataset, OTHER)
    total = len(hub.requests)
    expected = hub.repos[REPO].at("refs/pr/1")
    assert expected is not None
    for nth in range(1, total + 1):
        fresh(hub, tmp_path)
        hub.fail("cut", nth=nth, when=when, times=10_000)
        with pytest.raises(ExternalError):
            publish(dataset, OTHER)
        hub.faults.clear()
        assert not hub.repos[REPO].head.tree
        for pull in hub.open_pull_requests(REPO):
            commit = hub.repos[REPO].at(f"refs/pr/{pull.num}")
            assert commit is not None and commit.tree == expected.tree, "half of it is worse than nothing"
        publish(dataset, OTHER)
        assert len(hub.open_pull_requests(REPO)) == 1, f"request {nth}"


def test_a_slow_answer_to_any_request_ends_in_one_pull_request(hub: Hub, prepare: Prepare, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("gymdata.sources.hub.TIMEOUT", 1.0)
    dataset = prepare(train=ROWS)
    hub.add_repo(REPO)
    publish(dataset, OTHER)
    lines = [request.line for request in hub.requests]
    expected = hub.repos[REPO].at("refs/pr/1")
    assert expected is not None
    for nth in range(1, len(lines) + 1):
        fresh(hub, tmp_path)
        hub.fail("slow", nth=nth, seconds=1.5)
        if "/commit/" in lines[nth - 1]:
            # The commit is made after we stopped waiting: it must not be sent once more.
            with pytest.raises(ExternalError, match="does not say whether the commit was made"):
                publish(dataset, OTHER)
            while not hub.open_pull_requests(REPO):
                threading.Event().wait(0.02)
            assert not publish(dataset, OTHER)[1].sent
        else:
            publish(dataset, OTHER)
        (pull,) = hub.open_pull_requests(REPO)
        commit = hub.repos[REPO].at(f"refs/pr/{pull.num}")
        assert commit is not None and commit.tree == expected.tree, f"request {nth}"


def fresh(hub: Hub, tmp_path: Path) -> None:
    """An empty repository, empty storage, an empty cache."""
    hub.faults.clear()
    shutil.rmtree(tmp_path / "hf-home", ignore_errors=True)
    for blob in hub.blobs.iterdir():
        blob.unlink()
    hub.add_repo(REPO)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("acme", "sums", "math"), "acme/Nemotron-RL-math-sums"),
        (("acme", "sums", None), "acme/Nemotron-RL-sums"),
        (("acme", "sums", "Math", ""), "acme/math-sums"),
    ],
)
def test_names_follow_the_rules_of_nemo_gym(arguments: tuple, name: str) -> None:
    assert repository_name(*arguments) == name


@pytest.mark.parametrize(
    "name",
    [
        "sums",
        "a/b/c",
        "acme/two words",
        "acme/" + "x" * 97,
        "acme/-x",
        "acme/x.",
        "acme/a--b",
        "acme/größe",
        "acme/x.git",
        "acme/",
        "/x",
        "",
    ],
)
def test_a_name_that_the_hub_refuses_is_refused_here(name: str) -> None:
    with pytest.raises(UsageError, match="no name that the Hub takes"):
        Target(name)


def test_the_client_takes_every_name_that_is_taken_here(hub: Hub, prepare: Prepare) -> None:
    for name in ("acme/x", "acme/_x_", "a.b/c.d-e_f", "acme/" + "x" * 96):
        with planned(prepare(train=ROWS), Target(name), Credentials(OWNER)) as plan:
            assert not plan.exists


def test_the_card_is_read_by_everyone(hub: Hub, prepare: Prepare) -> None:
    publish(prepare(train=ROWS, validation=ROWS[:1]), create_pr=False)
    import yaml

    front = yaml.safe_load(hub.read(REPO, "README.md").decode().split("---")[1])
    assert front["license"] == "mit" and front["size_categories"] == ["n<1K"]
    assert front["configs"][0]["data_files"][0] == {"split": "train", "path": "data/train-*-of-*.parquet"}
    assert {"name": "responses_create_params", "dtype": "json"} in front["dataset_info"]["features"]
    assert json.loads(json.dumps(front)) == front

"""What a server keeps of rollouts: bounded in number and time; token ids as sequences to train on."""

from __future__ import annotations

import random

import pytest

from gymdata.rollouts.kept import Full, Kept
from gymdata.rollouts.sequences import Sequences


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_nobody_asked_for_goes_after_its_time():
    clock = Clock()
    kept: Kept[int] = Kept(10, 5.0, clock)
    kept.add("a", 1)
    kept.add("b", 2)
    clock.now = 4.0
    assert kept.get("a") == 1
    clock.now = 6.0
    assert (kept.get("a"), kept.get("b"), len(kept)) == (1, None, 1)


def test_what_is_in_use_stays():
    clock = Clock()
    kept: Kept[list[int]] = Kept(1, 5.0, clock)
    with kept.using("a", list) as value:
        clock.now = 100.0
        assert kept.get("a") is value
        with pytest.raises(Full):
            kept.add("b", [])
    clock.now = 106.0
    assert kept.get("a") is None


def test_turns_that_go_on_are_one_sequence_and_others_begin_one():
    sequences = Sequences()
    sequences.add([1, 2], [3, 4], [-0.1, -0.2])
    sequences.add([1, 2, 3, 4, 5], [6], [-0.3])
    sequences.add([1, 2, 9], [7], [-0.4])
    first, second = (one.to_json() for one in sequences.all)
    assert first == {
        "token_ids": [1, 2, 3, 4, 5, 6],
        "loss_mask": [0, 0, 1, 1, 0, 1],
        "logprobs": [0.0, 0.0, -0.1, -0.2, 0.0, -0.3],
    }
    assert (second["token_ids"], second["loss_mask"]) == ([1, 2, 9, 7], [0, 0, 0, 1])


@pytest.mark.parametrize("seed", range(20))
def test_every_sampled_token_stands_once_after_its_prompt(seed: int):
    draw = random.Random(seed)
    sequences, turns = Sequences(), []
    for number in range(30):
        before = draw.choice(turns) if turns and draw.random() < 0.7 else ([], [])
        prompt = [*before[0], *before[1], *(draw.randint(0, 3) for _ in range(draw.randint(1, 3)))]
        turn = (prompt, [100 + number] * draw.randint(1, 3))
        turns.append(turn)
        sequences.add(*turn, [-1.0] * len(turn[1]))
    masked = [(token, mask) for one in sequences.all for token, mask in zip(one.ids, one.sampled, strict=True)]
    sampled = sorted(token for token, mask in masked if mask)
    assert sampled == sorted(token for _, generated in turns for token in generated)
    for prompt, generated in turns:
        whole = [*prompt, *generated]
        assert any(one.ids[: len(whole)].tolist() == whole for one in sequences.all)

"""Rows to measure with: math-like and tool-heavy JSONL of any size, the same bytes for the same arguments on every machine.

Words follow an order-2 Markov chain over the texts of fixtures/; 2 % of the rows repeat an earlier row.

    python benchmarks/corpora.py math 200 math.jsonl      # about 200 MB
"""

from __future__ import annotations

import json
import random
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
DUPLICATES = 0.02
RECENT = 2_000
"""A repeated row repeats one of this many rows before it."""

TOOLS = 4_000
TOOLS_PER_ROW = 5
TURNS_PER_ROW = 3
CALLS_PER_TURN = 2

Row = dict[str, Any]


class Words:
    """Endless prose: each word drawn from those that follow the two words before it in `texts`."""

    def __init__(self, texts: list[str], rng: random.Random) -> None:
        self._rng = rng
        self._after: dict[tuple[str, str], list[str]] = {}
        for text in texts:
            words = text.split()
            for first, second, third in zip(words, words[1:], words[2:], strict=False):
                self._after.setdefault((first, second), []).append(third)
        self._pairs = list(self._after)

    def text(self, count: int) -> str:
        """About `count` words, a line feed after some sentences."""
        choice, after = self._rng.choice, self._after
        first, second = choice(self._pairs)
        words = [first, second]
        for _ in range(count - 2):
            following = after.get((first, second))
            if following is None:
                end = "\n" if second.endswith(".") else ""
                first, second = choice(self._pairs)
                words.append(end + first)
            else:
                first, second = second, choice(following)
            words.append(second)
        return " ".join(words)


def math_rows(words: Words, rng: random.Random) -> Iterator[Row]:
    """Rows of about 2.2 kB: one user message, the question again, an answer that the question does not hold."""
    number = 0
    while True:
        number += 1
        parts = []
        for _ in range(rng.randint(4, 7)):
            parts += [words.text(rng.randint(14, 34)), _formula(rng)]
        question = f"Problem {number}: " + " ".join(parts) + " What is the value of the last expression?"
        yield {
            "responses_create_params": {
                "input": [
                    {"role": "user", "content": f"Solve the following math problem, and box the final answer.\n\n{question}"}
                ]
            },
            "question": question,
            "expected_answer": rf"\frac{{{rng.randint(10**6, 10**7)}}}{{{rng.randint(10**6, 10**7)}}}",
            "problem_type": rng.choice(["algebra", "geometry", "number theory", "combinatorics"]),
            "source": f"synthetic/math/{number}",
            "difficulty": rng.randint(1, 10),
            "pass_rate": round(rng.random(), 4),
        }


def tool_rows(words: Words, rng: random.Random) -> Iterator[Row]:
    """Rows of about 14 kB: five tools of 4,000, and three turns with calls, their outputs and an answer."""
    tools = [_tool(index, words, rng) for index in range(TOOLS)]
    number = 0
    while True:
        number += 1
        chosen = rng.sample(tools, TOOLS_PER_ROW)
        items: list[Row] = [{"role": "system", "content": words.text(140)}]
        for turn in range(TURNS_PER_ROW):
            items.append({"role": "user", "content": f"Request {number}.{turn}: {words.text(rng.randint(60, 110))}"})
            for call in range(CALLS_PER_TURN):
                items += _call(f"call_{number}_{turn}_{call}", rng.choice(chosen), words, rng)
            items.append({"role": "assistant", "content": words.text(rng.randint(60, 110))})
        yield {
            "responses_create_params": {
                "input": items[:-1],
                "tools": chosen,
                "tool_choice": "auto",
                "parallel_tool_calls": False,
                "temperature": rng.choice([0.6, 0.7, 1.0]),
            },
            "expected_action": {"type": "function_call", "name": chosen[0]["name"], "arguments": "{}"},
            "category": rng.choice(["simple", "multiple", "parallel"]),
            "source_id": f"synthetic/tools/{number}",
            "steps": TURNS_PER_ROW * CALLS_PER_TURN,
        }


def _formula(rng: random.Random) -> str:
    a, b, c = rng.randint(2, 99), rng.randint(2, 99), rng.choice("xyzαβ")
    return rng.choice(
        [
            rf"$\frac{{{a}{c}}}{{{b}}} \le {c}^2$",
            rf"$\sqrt{{{a} + {c}}} = {b}$",
            rf"$\sum_{{k=1}}^{{{a}}} {c}_k = {a + b}$",
            rf"${a}{c}^3 - {b}{c} + {a * b} = 0$",
            f"{a} ≤ {c} < {a + b}, ∠ABC = {b}°",
        ]
    )


def _tool(index: int, words: Words, rng: random.Random) -> Row:
    names = [f"{rng.choice(['city', 'count', 'query', 'limit', 'user', 'note'])}_{number}" for number in range(rng.randint(3, 5))]
    return {
        "type": "function",
        "name": f"{rng.choice(['get', 'find', 'update', 'list'])}_{rng.choice(['orders', 'flights', 'notes', 'users'])}_{index}",
        "description": words.text(rng.randint(15, 30)),
        "parameters": {
            "type": "object",
            "properties": {
                name: {"type": rng.choice(["string", "integer", "number"]), "description": words.text(rng.randint(8, 14))}
                for name in names
            },
            "required": names,
            "additionalProperties": False,
        },
        "strict": True,
    }


def _call(call_id: str, tool: Row, words: Words, rng: random.Random) -> list[Row]:
    values = {
        name: words.text(4) if schema["type"] == "string" else rng.randint(1, 10_000)
        for name, schema in tool["parameters"]["properties"].items()
    }
    result = {"status": "ok", "items": [{"id": rng.randint(1, 10**6), "text": words.text(rng.randint(12, 28))} for _ in range(4)]}
    return [
        {"type": "function_call", "call_id": call_id, "name": tool["name"], "arguments": json.dumps(values)},
        {"type": "function_call_output", "call_id": call_id, "output": json.dumps(result)},
    ]


def _texts() -> list[str]:
    """What is said in the rows of fixtures/, without braces, which could look like an unfilled template."""
    texts = []
    for path in sorted(FIXTURES.glob("*/*.jsonl")):
        if path.parent.name == "rows":
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            for item in json.loads(line)["responses_create_params"]["input"]:
                texts.append("".join(character for character in item["content"] if character not in "{}[]<>\\"))
    return texts


Kind = tuple[Callable[[Words, random.Random], Iterator[Row]], Callable[[Row], str]]
KINDS: dict[str, Kind] = {
    "math": (math_rows, lambda row: json.dumps(row, ensure_ascii=False, separators=(",", ":"))),
    "tools": (tool_rows, json.dumps),
}
"""Kind -> its rows, and how they are written: compact UTF-8, or as `json.dumps` does by default."""


def lines(kind: str) -> Iterator[bytes]:
    """Endless lines of `kind`, each with its line feed."""
    make, write = KINDS[kind]
    rng = random.Random(f"gymdata {kind}")
    recent: deque[bytes] = deque(maxlen=RECENT)
    for row in make(Words(_texts(), rng), rng):
        if recent and rng.random() < DUPLICATES:
            yield recent[rng.randrange(len(recent))]
        line = write(row).encode() + b"\n"
        recent.append(line)
        yield line


def write_corpus(kind: str, path: Path, size: int = 0, rows: int = 0) -> int:
    """Write at least `size` bytes, or `rows` rows, to `path`; the number of rows."""
    written = count = 0
    with open(path, "wb") as stream:
        for line in lines(kind):
            if (count >= rows) if rows else (written >= size):
                return count
            written += stream.write(line)
            count += 1
    raise AssertionError("lines() has no end")


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in KINDS:
        sys.exit("usage: python benchmarks/corpora.py math|tools MEGABYTES PATH")
    print(f"{write_corpus(sys.argv[1], Path(sys.argv[3]), size=round(float(sys.argv[2]) * 1e6)):,} rows")

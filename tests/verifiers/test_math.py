"""Mathematics: the last box, the library's traps, and answers that cost too much."""

import pytest

pytest.importorskip("math_verify", reason="math-verify is not installed: pip install 'gymdata[verifiers]'")

from gymdata.verifiers import VerifierFailure
from gymdata.verifiers.math import Math
from gymdata.verifiers.responses import message
from tests.verifiers.gym import needs_gym, verdicts

EQUAL = """
72 | 72.0
72 | +72
7 | 007
1000 | 1,000
1,000 | 1000
0.5 | \\frac12
0.6666666667 | \\frac{2}{3}
\\frac{1}{3} | 0.333333
3\\sqrt{2} | \\sqrt{18}
2^{10} | 1024
x^2+2x+1 | (x+1)^2
90 | 90^\\circ
3 | x=3
x=3 | 3
x^2=4 | x^2-4=0
x^2+50=0 | 2x^2+100=0
2+3i | 3i+2
4-\\mathrm{i} | 4-i
East | \\text{East}
No solution. | \\text{no solution}
A | \\text{(A)}
50\\% | 50
50 | 50\\%
0.5 | 50\\%
50\\% | 0.5
12.5 | 12.5\\%
5 | 5 cm
5 | 5\\text{ dollars}
5 | 5 dollars
5 | \\$5
5 \\text{ cm} | 5
5 \\text{ cm} | 5\\mathrm{cm}
5000000 | 5 million
5000000 | 5\\text{ million dollars}
\\{1,2\\} | 2,1
1,2 | \\{2, 1\\}
(1,2) | (1,2)
(1,2) | 1,2
(1,2,3) | (1,2,3.0)
[1,2) | [1,2)
(-\\infty,-4) \\cup (2,\\infty) | (2,\\infty) \\cup (-\\infty,-4)
\\left(1, \\frac{3}{2}\\right) | (1,1.5)
\\left\\{1,2\\right\\} | 2,1
-1<x<2 | (-1,2)
x \\in (1,2) | (1,2)
1 1/2 | 1.5
1 1/2 | \\frac{3}{2}
1e5 | 100000
4.5e33 | 4.5 \\times 10^{33}
1.39 \\times 10^{-10} | 1.39e-10
1202_3 | 1202_{3}
1202_3 | 1202
\\frac{12}{5,\\!525} | \\frac{12}{5525}
2007 + \\frac\\pi 2 | 2007+\\pi/2
12 | 12\\,
12 | \\; 12 \\;.
5 | =5
5 | \\approx 5
12 | \\large 12
12 | {\\bf 12}
12 | \\boldsymbol{12}
12 | \\textcolor{red}{12}
3x | \\Large 3x
25\\% | 25\\ \\%
28\\% | 28 percentage
32349 | 32,\\! 349
1234567 | 1\\,234\\,567
1000 | 1 000
45 | 45°
45° | 45
12 | €12
12.50 | 12.50€
-5 | –5
(-\\infty,3) | (-∞,3)
\\emptyset | \\varnothing
71/6 | +11 5/6
x=2,3 | x=3,2
z=1+1=2 | z=3-1=2
2,2,3 | 3,2,2
5 | 5 years old
5 | 5 km
30^\\circ. | 30
$p - q$ | p-q
\\(x+1\\) | 1+x
"""
DIFFERENT = """
72 | 73
72 |
3.14 | \\pi
1/3 | 0.33
0.6666666667 | 1.6666666667
1,234 | 1,235
50\\% | 0.6
5 | 5\\text{ million}
(2,1) | (3,1)
(2,1) | (1,2)
(1,2) | [1,2]
(1,2,3) | (1,3,2)
\\emptyset | (3,1)
1 1/2 | 1
3 | 3 or 4
12 | 12 and 5
6,6,5 | 6,5,5
2,2 | 2
(2,2,3) | (3,2,2)
x=2,3 | x=2,4
z=1+1=2 | z=1+1=3
1, 2, 3 | 1, 2, 3, ...
5 | 5 or more
5 | 5 sin x
5 | 5 plus x
5 | 5 factorial
5 | 5 xy
5 | 5 dozen
5 | \\neq 5
3x | \\large 3
1234 | 1\\,23
(-\\infty,-4) \\cup (2,\\infty) | (-\\infty,-4) \\cup (3,\\infty)
(0,-1) \\cup (2,3) | (0,-1) \\cup (2,4)
i | -i
1202_3 | 1202_4
x^2+50=0 | x^2+50=1
\\log_6(1/36)=-2 | \\log_6(1/36)=-3
4-\\mathrm{i} | 4-2\\mathrm{i}
0 | 0.0000001
1.39 \\times 10^{-10} | 2.4 \\times 10^{-10}
\\frac{1}{2^{98}} | \\frac{1}{2^{99}}
"""
COSTLY = [
    "9^{9^{9^9}}", "9**9**9**9", "5^{5^{5^{5^5}}}", "100000000!", "((((3!)!)!)!)!", "\\binom{10^{9}}{5 \\cdot 10^{8}}", "2^{100000000}",
    "\\sqrt{" * 2000 + "2" + "}" * 2000, "(" * 5000 + ")" * 5000, "{" * 900 + "}" * 900, "1+" * 1400 + "1", "\\frac" * 500, "9" * 2900,
    "\\int_0^1 " * 200 + "x", "x^" * 700 + "2", "__import__('os').system('touch pwned')", "\\text{" * 400,
]  # fmt: skip


def cases(table):
    return [tuple(part.strip() for part in line.split("|")) for line in table.strip().splitlines()]


def score(gold, text):
    return Math().verify({"expected_answer": gold}, message(text))


@pytest.mark.parametrize(("gold", "answer"), cases(EQUAL))
def test_right_in_other_words(gold, answer):
    assert score(gold, f"\\boxed{{{answer}}}").reward == 1


@pytest.mark.parametrize(("gold", "answer"), cases(DIFFERENT))
def test_wrong(gold, answer):
    assert score(gold, f"\\boxed{{{answer}}}").reward == 0


@pytest.mark.parametrize(
    ("gold", "text", "reward"),
    [
        ("12", "First \\boxed{10}, then \\boxed{12}.", 1),  # the library alone makes {10, 12} of them
        ("12", "First \\boxed{12}, then \\boxed{10}.", 0),
        ("1,2", "\\boxed{1} and \\boxed{2}", 1),
        ("1,2", "\\boxed{2} and \\boxed{1}", 1),
        ("1,2", "\\boxed{1} and \\boxed{3}", 0),
        ("1,2", "\\boxed{5}, no: \\boxed{1} and \\boxed{2}", 1),
        ("12", "12", 0),
        ("12", "the answer is 12", 0),
        ("12", "\\boxed{12", 0),
        ("12", "\\boxed{12} or \\boxed{", 0),
        ("12", "\\boxed{}", 0),
        ("\\frac{1}{2}", "\\boxed{\\frac{1}{2}}", 1),
        ("12", "\\boxed{\\boxed{12}}", 1),
    ],
)
def test_only_the_last_complete_box_counts_or_as_many_as_the_answer_has_parts(gold, text, reward):
    assert score(gold, text).reward == reward


@pytest.mark.parametrize("answer", COSTLY, ids=lambda answer: answer[:30])
def test_an_answer_that_would_cost_too_much_is_wrong_and_says_why(answer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    verdict = score("3", f"\\boxed{{{answer}}}")
    assert verdict.reward == 0
    assert verdict.extras["reason"]
    assert not list(tmp_path.iterdir())


def test_ten_megabytes_are_read_to_the_last_box_and_a_box_of_ten_megabytes_is_refused():
    assert score("3", "{" * 10_000_000 + "\\boxed{3}").reward == 1
    assert score("3", "\\boxed{" * 1_000_000).reward == 0
    assert "characters" in score("3", "\\boxed{" + "1+" * 5_000_000 + "1}").extras["reason"]


def test_a_row_without_an_answer_cannot_be_scored():
    with pytest.raises(VerifierFailure):
        score("", "\\boxed{3}")


@pytest.mark.parametrize("gold", [one for one, _ in cases(EQUAL)])
def test_the_gold_answer_scores_and_its_changed_numbers_do_not(gold):
    row = {"expected_answer": gold}
    made = Math().gold(row)
    assert made.right is not None
    assert Math().verify(row, made.right).reward == 1
    assert all(Math().verify(row, wrong).reward == 0 for wrong in made.wrong)


def test_an_answer_that_is_the_text_of_a_list_is_doubted():
    assert Math().gold({"expected_answer": "['9.6\\n']"}).doubt
    assert not Math().gold({"expected_answer": "\\frac{1}{2}"}).doubt


@needs_gym
def test_nemo_gym_agrees_but_for_the_traps():
    """Where the verdicts differ, ours is the one that the tables above call right."""
    asked = [
        ({"expected_answer": gold, "question": "?"}, message(f"So \\boxed{{{answer}}}."), 1.0) for gold, answer in cases(EQUAL)
    ]
    asked += [
        ({"expected_answer": gold, "question": "?"}, message(f"So \\boxed{{{answer}}}."), 0.0)
        for gold, answer in cases(DIFFERENT)
    ]
    theirs = verdicts("math_with_judge", [(row, response) for row, response, _ in asked], should_use_judge=False)
    agreed = [one["reward"] == want for one, (_, _, want) in zip(theirs, asked, strict=True)]
    assert sum(agreed) > len(agreed) / 2
    assert all(Math().verify(row, response).reward == want for row, response, want in asked)

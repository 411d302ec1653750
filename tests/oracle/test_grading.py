"""Compares the builtin grader of `dapd grade` with math-verify, on pairs that models and benchmarks write."""

import collections
import json
import sys

import pytest

import answer_pairs
from conftest import read_jsonl, run_dapd, write_jsonl

COUNT = 2000
SEED = 20260801

# math-verify 0.9.0 takes these pairs for different because of its regular expressions and not because of the
# mathematics.
SLIPS = [
    ("13°", "13^\\circ"),
    ("89\\degree", "89^\\circ"),
    ("-65883.", "-65883"),
    ("\\left[1, 18\\right]", "[1, 18]"),
    ("\\left(7,-5\\right)", "(7, -5)"),
    ("(-5,\\infty)\\cup(-\\infty,-6)", "(-\\infty,-6)\\cup(-5,\\infty)"),
    ("1e3", "1000"),
]

# Pairs from reviews that a grader of exact numbers and texts rejects, and pairs that it must not take for equal.
KNOWN = [
    ("336^\\circ", "336", True),
    ("\\frac{-1}{2}", "-\\frac{1}{2}", True),
    ("2^{99}", "2^99", True),
    ("4\\sqrt{37}+14", "14+4\\sqrt{37}", True),
    ("\\frac9{\\sqrt{23}}", "\\frac{9\\sqrt{23}}{23}", True),
    ("x=5", "5", True),
    ("x=5", "y=5", False),
    ("2^{99}", "2^{99}+1", False),
    ("10^{20}", "10^{20}+1", False),
    ("5^{2023}-4", "5^{2023}", False),
    ("10^{2024}-1", "10^{2024}", False),
    ("0.\\overline{36}", "4/11", True),
    ("2 1/2", "1", False),
    ("7 654", "4578", False),
    ("3:4:5", "3:5:4", False),
    ("2+3\\mathrm{i}", "2+3i", True),
    ("2x", "2", False),
    ("(1,2)", "(2,1)", False),
    ("[1,2]", "(1,2)", False),
    ("2\\pm\\sqrt{3}", "2+\\sqrt3, 2-\\sqrt3", True),
    ("x=2 \\text{ or } x=3", "2,3", True),
    ("1<x<2", "(1,2)", True),
    ("x<5", "x\\le 5", False),
    ("90^{\\circ}", "\\frac{\\pi}{2}", False),
    ("0.33333", "\\frac13", False),
    ("0.333333", "\\frac13", True),
    ("4\\pi \\approx 12.57", "12.57", True),
    ("m\\angle A = 50^\\circ", "50", True),
    ("12.5\\%", "0.125", True),
    ("\\{1,2\\}", "\\{1,2,2\\}", False),
]

# An equation counts as its right-hand side if that is expected. If the equation is expected, its right-hand side is
# enough if its left-hand side has names only.
COMPUTED = [("2x = 10", "10"), ("3+x = 5", "5"), ("x-y = 7", "7"), ("5a+b = 9", "9"), ("9 = 5a+b", "5a+b"), ("a^2 = 4", "4")]
LABELS = ["x", "PQ", "ABC", "ABCD", "AB+CD", "x+y", "xy", "\\angle ABC", "m\\angle A", "\\text{Area}", "\\text{the answer}", "\\mathrm{PQ}", "\\overline{AB}", "x_1", "a_n", "a_{n+1}", "S_{ABC}", "|PQ|", "[ABC]",
          "f(x)", "P(A)", "\\frac{a}{b}", "BC/AB", "\\sin A", "\\triangle", "\\alpha\\beta", "AB\\cdot CD", "\\lfloor x\\rfloor", "k", "2x", "x-y", "5a+b", "k+1", "a^2", "-x", "\\frac{1}{x}", "9", "\\sqrt{x}", "2AB"]
VALUES = [("14", "15"), ("\\frac{3}{4}", "\\frac{4}{3}"), ("2\\sqrt{3}", "3\\sqrt{2}"), ("(1,2)", "(2,1)"), ("5a+b", "5a-b")]
# Texts between two boxes.
BETWEEN = [" and ", ", ", ",", " or ", " ", "\n", "; ", ". ", "$ and $", "$, $", "$ or $k=", "$ and $k=", ", so that in the other case we find ", " and in the other case ", ". Then we find something else: ", ". Then, after a while, we find the very last number that there is to be found here: ",
           " \\text{ and } ", ".\n\nThe other solution is then ", " is one; the other one is ", ".\n\n**Final answer**\n\n"]


HOSTILE = [
    "{" * 5000,
    "}" * 5000,
    "\\frac{" * 800,
    "(" * 2000 + "1" + ")" * 2000,
    "\\left(" * 500,
    "\\sqrt" * 900,
    "9^{9^{9^{9^{9}}}}",
    "((((9!)!)!)!)!",
    "2900!+" * 680 + "1",
    "9^{5000}/7^{5800}," * 220 + "1",
    "1" * 4000,
    "\\pm" * 1500 + "1",
    "1," * 2000 + "1",
    "\\text{" * 1000 + "x" + "}" * 1000,
    "\\begin{pmatrix}" * 200 + "1" + "\\end{pmatrix}" * 200,
    "|" * 2001,
    "x_" * 2000,
    "-" * 4000 + "1",
    "\\" * 4001,
    "1/0",
    "0^0",
    "\\infty-\\infty",
    "10^{10^{10}}",
    "\x00\x01\\x00",
]


def grade(tmp_path, rows, *flags, grader="builtin"):
    source = write_jsonl(tmp_path / "in.jsonl", rows)
    output = tmp_path / f"{grader}.jsonl"
    run_dapd("grade", "--input", source, "--output", output, "--grader", grader, *flags)
    graded = read_jsonl(output)
    assert [row["id"] for row in graded] == [row["id"] for row in rows]
    return graded


def boxed(pairs):
    return [{"id": i, "text": f"Therefore the answer is \\boxed{{{given}}}.", "answer": expected} for i, (given, expected) in enumerate(pairs)]


# math-verify as a grader of the user's own (docs/graders.md).
OWN_GRADER = """
import json, logging, sys
import math_verify
logging.disable(logging.CRITICAL)
for line in sys.stdin:
    question = json.loads(line)
    try:
        expected = question["row"]["answer"]
        expected = math_verify.parse(expected if "\\\\boxed" in expected else "\\\\boxed{" + expected + "}")
        grade = {"correct": bool(math_verify.verify(expected, math_verify.parse(question["answer"])))}
    except Exception as error:
        grade = {"error": str(error)}
    print(json.dumps({"id": question["id"], **grade}), flush=True)
"""


def test_math_verify_as_a_program_of_ones_own_grades_the_same(tmp_path):
    rows = boxed([pair[:2] for pair in KNOWN] + SLIPS + [(f"{i}", f"{i % 3 + i}") for i in range(100)])
    (tmp_path / "own.py").write_text(OWN_GRADER)
    (tmp_path / "grade.yaml").write_text(json.dumps({"model": {"path": "none"}, "grader": {
        "command": [sys.executable, str(tmp_path / "own.py")], "workers": 2}}))
    own = grade(tmp_path, rows, "--config", tmp_path / "grade.yaml")
    shipped = grade(tmp_path, rows, grader="math-verify")
    assert [g["id"] for g in own] == [row["id"] for row in rows]
    assert [g["correct"] for g in own] == [g["correct"] for g in shipped]
    assert all(g["score"] == float(g["correct"]) for g in own if "ungraded" not in g)
    print(f"{len(rows)} answers, {sum(g['correct'] for g in own)} right, by both ways")


def test_builtin_and_math_verify_agree(tmp_path):
    made = answer_pairs.pairs(SEED, COUNT)
    rows = boxed([(given, expected) for _, given, expected in made])
    ours, theirs = grade(tmp_path, rows), grade(tmp_path, rows, grader="math-verify")
    assert not [row for row in theirs if "error" in row]
    kinds = collections.defaultdict(lambda: [0, 0, 0])
    differing = []
    for (kind, given, expected), a, b in zip(made, ours, theirs, strict=True):
        counts = kinds[kind]
        counts[0] += 1
        counts[1] += b["correct"]
        if a["correct"] != b["correct"]:
            counts[2] += 1
            differing.append(f"{kind}: {given!r} for {expected!r}: builtin {a['correct']}, math-verify {b['correct']}")
    for kind, (count, right, different) in sorted(kinds.items()):
        print(f"{kind:14} {count:4} pairs, {right:4} right, {different:3} judged differently")
    print(*differing, sep="\n")
    agreement = 1 - len(differing) / COUNT
    print(f"agreement {100 * agreement:.2f} %")
    # The corpus has both right and wrong pairs.
    assert all(0.2 < right / count < 0.95 for count, right, _ in kinds.values())
    assert agreement >= 0.99


def test_boxes_of_one_statement_count_together(tmp_path):
    """This holds in answers and in expected answers, as math-verify joins them."""
    rows = []
    for before, after in (("", ""), ("$k=", "$"), ("So ", "."), ("$", "$")):
        for between in BETWEEN:
            if ("$" in between) != (before[:1] == "$"):
                continue
            for first, second in (("3", "-7"), ("3", "3"), ("x=3", "x=-7"), ("\\frac12", "\\text{blue}")):
                text = f"{before}\\boxed{{{first}}}{between}\\boxed{{{second}}}{after}"
                single = f"so it is \\boxed{{{second}}}."
                rows += [(text, second), (text, first), (single, text), (text, text)]
                # For math-verify a set has nothing twice; here "3, 3" differs from "3".
                rows += [(text, f"{first}, {second}"), (text, f"{second}, {first}")] if first != second else []
    rows = [{"id": i, "text": text, "answer": answer} for i, (text, answer) in enumerate(rows)]
    ours, theirs = grade(tmp_path, rows), grade(tmp_path, rows, grader="math-verify")
    differing = [(row["text"], row["answer"], a["correct"]) for row, a, b in zip(rows, ours, theirs, strict=True) if a["correct"] != b["correct"]]
    print(*differing, sep="\n")
    print(f"{len(rows)} pairs, {sum(b['correct'] for b in theirs)} right, agreement {100 * (1 - len(differing) / len(rows)):.2f} %")
    # This concerns only a number beside a text, which math-verify leaves out of its sets.
    assert all(correct and "blue" in text for text, _, correct in differing)
    half = [{"id": 0, "text": "so \\boxed{-7}", "answer": "$k=\\boxed{3}$ and $k=\\boxed{-7}$"}, {"id": 1, "text": "\\boxed{3}</think>\\boxed{-7}", "answer": "-7"}]
    assert [row["correct"] for row in grade(tmp_path, half)] == [False, True]
    assert [row["extracted"] for row in grade(tmp_path, [{"id": 0, "text": "\\boxed{ 3 } and \\boxed {4}", "answer": "4"}])] == ["3, 4"]


def test_labels_count_as_math_verify_says(tmp_path):
    pairs = [(given, f"{label} = {value}") for label in LABELS for value, other in VALUES for given in (value, other, f"{label} = {value}", f"{label}={other}")]
    pairs += [(f"{label} = {value}", expected) for label in LABELS for value, other in VALUES for expected in (value, other)]
    rows = boxed(pairs)
    ours, theirs = grade(tmp_path, rows), grade(tmp_path, rows, grader="math-verify")
    differing = [(pair, a["correct"]) for pair, a, b in zip(pairs, ours, theirs, strict=True) if a["correct"] != b["correct"]]
    print(*differing, sep="\n")
    print(f"{len(pairs)} pairs, {sum(b['correct'] for b in theirs)} right, agreement {100 * (1 - len(differing) / len(pairs)):.2f} %")
    assert len(differing) < 0.05 * len(pairs)


@pytest.mark.parametrize("grader", ["builtin", "math-verify"])
def test_an_expected_answer_may_be_worked_text(grader, tmp_path):
    """Examples are the column `answer` of GSM8K, and a solution of MATH."""
    gsm8k = "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\nNatalia sold 48+24 = <<48+24=72>>72 clips altogether.\n#### 72"
    rows = boxed([("72", gsm8k), ("24", gsm8k), ("1200", "6 * 200\n#### 1,200"), ("\\frac12", "Since $2x = 1$, $x = \\boxed{\\frac{1}{2}}$.")])
    assert [row["correct"] for row in grade(tmp_path, rows, grader=grader)] == [True, False, True, True]


@pytest.mark.parametrize("given, expected, right", KNOWN)
def test_known_pairs(tmp_path, given, expected, right):
    assert [row["correct"] for row in grade(tmp_path, boxed([(given, expected), (expected, given)]))] == [right, right]


def test_what_is_computed_counts_only_if_it_is_expected(tmp_path):
    assert [row["correct"] for row in grade(tmp_path, boxed(COMPUTED))] == [True] * len(COMPUTED)
    assert not any(row["correct"] for row in grade(tmp_path, boxed([(expected, given) for given, expected in COMPUTED])))


def test_slips_of_math_verify_are_judged_by_the_mathematics(tmp_path):
    assert [pair for pair, row in zip(SLIPS, grade(tmp_path, boxed(SLIPS)), strict=True) if not row["correct"]] == []


def test_hostile_answers_are_graded_in_no_time(tmp_path):
    """They are graded alone, against each other, and with a megabyte of text around them."""
    pairs = [(hostile, expected) for hostile in HOSTILE for expected in ("1", hostile, HOSTILE[2], HOSTILE[10])]
    rows = boxed(pairs)
    rows += [{"id": f"long {i}", "text": hostile * (1_000_000 // len(hostile)), "answer": "1"} for i, hostile in enumerate(HOSTILE)]
    source = write_jsonl(tmp_path / "hostile.jsonl", rows)
    run_dapd("grade", "--input", source, "--output", tmp_path / "out.jsonl", timeout=120)
    assert len(read_jsonl(tmp_path / "out.jsonl")) == len(rows)


def test_math_verify_goes_on_behind_what_it_cannot_do(tmp_path):
    """math-verify has to give up on one evaluation, between two that succeed; math_verify_grader_test.cc tests one that
    hangs."""
    dear = "\\sum_{k=1}^{10^{9}} \\frac{\\sin(k)^{k}}{k!}"
    graded = grade(tmp_path, boxed([("4", "4"), (dear, "3"), ("5", "5")]), grader="math-verify")
    assert [row["correct"] for row in graded] == [True, False, True]


@pytest.mark.parametrize("key", ["id", "answer"])
def test_a_number_whose_digits_json_loses_is_refused(key, tmp_path):
    source = write_jsonl(tmp_path / "in.jsonl", [{"id": 1, "text": "\\boxed{1267650600228229401496703205376}", "answer": "1", key: 2**100}])
    result = run_dapd("grade", "--input", source, "--output", tmp_path / "out.jsonl", check=False)
    assert result.returncode == 4 and f"in.jsonl:1: '{key}'" in result.stderr and "in quotes" in result.stderr


def test_a_row_that_lacks_something_is_named(tmp_path):
    source = write_jsonl(tmp_path / "in.jsonl", [{"id": 1, "text": "\\boxed{1}", "answer": "1"}, {"id": 2, "text": "x"}])
    result = run_dapd("grade", "--input", source, "--output", tmp_path / "out.jsonl", check=False)
    assert result.returncode == 4 and "in.jsonl:2" in result.stderr and "'answer'" in result.stderr
    assert not (tmp_path / "out.jsonl").exists()

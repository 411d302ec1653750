"""`dapd probe claims` on answers as an evaluation writes them."""

import json

import pytest

STUCK = "Let x be the number. This approach does not work. "
ANSWERS = [
    {"id": "a", "sample": 0, "text": STUCK + "I recall that the answer is 42. \\boxed{42}", "correct": False},
    {"id": "a", "sample": 1, "text": STUCK + "I recall that the answer is 42. \\boxed{42}", "correct": True},
    {"id": "a", "sample": 2, "text": STUCK + "The official solution says 41. \\boxed{41}", "answer": "42"},
    {"id": "b", "sample": 0, "text": STUCK + "I guess the answer is 42. \\boxed{42}", "correct": False},
    {"id": "b", "sample": 1, "text": "I recall that the answer is 42. \\boxed{42}", "correct": False},
]


def probe(workspace, tmp_path, rows, *flags, check=True):
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return workspace.dapd("probe", "claims", "--input", path, *flags, check=check)


def test_only_wrong_answers_with_a_claim_behind_a_failure_count(workspace, tmp_path):
    found = tmp_path / "found.jsonl"
    report = json.loads(probe(workspace, tmp_path, ANSWERS, "--json", "--output", found).stdout)
    assert (report["problems"], report["answers"], report["wrong"], report["wrong_claims"]) == (2, 5, 4, 2)
    assert report["sources"] == {"memory": 1, "official solution": 1}
    rate = report["wrong_claims_per_10k"]
    assert rate["mean"] == pytest.approx(4000) and rate["low"] == 0 and rate["high"] == pytest.approx(1e4 * 4 / 6)
    rows = [json.loads(line) for line in found.read_text().splitlines()]
    assert [(row["id"], row["sample"], row["source"]) for row in rows] == [("a", 0, "memory"), ("a", 2, "official solution")]
    assert rows[0]["failure"] == "This approach does not work." and rows[0]["claim"] == "I recall that the answer is 42."


def test_the_text_says_the_same(workspace, tmp_path):
    text = probe(workspace, tmp_path, ANSWERS).stdout
    assert "5 answers to 2 problems, 4 wrong" in text and "in 10,000 answers 4000.0 [" in text and "official solution" in text


@pytest.mark.parametrize("row, said", [
    ({"id": "a", "text": "x"}, 'neither "correct" nor an "answer"'),
    ({"id": "a", "correct": False}, '"text" is no text'),
    ({"text": "x", "correct": False}, '"id" is no text'),
    ({"id": "a", "text": "x", "correct": "no"}, '"correct" is no true or false'),
])
def test_a_row_that_cannot_be_used_is_named(workspace, tmp_path, row, said):
    result = probe(workspace, tmp_path, [ANSWERS[0], row], check=False)
    assert result.returncode == 4 and "answers.jsonl:2" in result.stderr and said in result.stderr


def test_no_answer_is_no_rate_of_zero(workspace, tmp_path):
    result = probe(workspace, tmp_path, [], check=False)
    assert result.returncode == 4 and "holds no answer" in result.stderr

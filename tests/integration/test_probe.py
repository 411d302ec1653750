"""`dapd probe claims` on answers as an evaluation writes them; `dapd probe compatibility` on samples and problems."""

import json
import re

import pytest

from workspace import set_flags

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
    ({"id": "a", "correct": False}, '"text" is not a string'),
    ({"text": "x", "correct": False}, '"id" is not a string'),
    ({"id": "a", "text": "x", "correct": "no"}, '"correct" is neither true nor false'),
])
def test_a_row_that_cannot_be_used_is_named(workspace, tmp_path, row, said):
    result = probe(workspace, tmp_path, [ANSWERS[0], row], check=False)
    assert result.returncode == 4 and "answers.jsonl:2" in result.stderr and said in result.stderr


def test_no_answer_is_no_rate_of_zero(workspace, tmp_path):
    result = probe(workspace, tmp_path, [], check=False)
    assert result.returncode == 4 and "holds no answer" in result.stderr


def compatibility(workspace, *flags, check=True, **settings):
    return workspace.dapd("probe", "compatibility", "--config", workspace.config, *set_flags(settings), *flags, check=check)


def write_samples(path, rows):
    path.write_text("".join(json.dumps({"reference": "It is \\boxed{5}.", **row}) + "\n" for row in rows))
    return path


def test_problems_are_answered_and_measured_the_same_every_time(workspace, tmp_path):
    reports = []
    for name in ("one", "two"):
        flags = ["--problems", 4, "--positions", 3, "--json", "--output", tmp_path / name]
        reports.append(json.loads(compatibility(workspace, *flags).stdout))
    assert reports[0] == reports[1] and (tmp_path / "one").read_text() == (tmp_path / "two").read_text()
    report = reports[0]
    rows = [json.loads(line) for line in (tmp_path / "one").read_text().splitlines()]
    assert report["first"]["compares"] == "self_rollout <- none_rollout (base)" and report["second"]["term"] == "privileged_rollout"
    assert report["problems"] + report["skipped_problems"] == 4 and len(rows) == report["positions"] <= 12
    assert all(abs(row["cosine"]) <= 1 + 1e-9 for row in rows)
    text = compatibility(workspace, "--problems", 4, "--positions", 3).stdout
    assert f"{report['positions']} positions of {report['problems']} problems" in text and "by position, averaged" in text


def test_references_alone_need_no_answers(workspace):
    flags = ["--first", "inference_reference", "--second", "inference_reference", "--problems", 2, "--positions", 2, "--json"]
    result = compatibility(workspace, *flags)
    assert "answering" not in result.stderr
    assert json.loads(result.stdout)["over_all"]["cosine"]["mean"] == pytest.approx(1)


def test_where_memory_is_short_problems_share_it(workspace, tmp_path):
    rows = [{"id": str(i), "problem": f"What is {i} + 1?", "rollout_ids": list(range(40 + i, 60 + i))} for i in range(5)]
    samples = write_samples(tmp_path / "samples.jsonl", rows)
    flags = ["--samples", samples, "--positions", 2, "--json"]
    whole = json.loads(compatibility(workspace, *flags).stdout)
    refused = compatibility(workspace, *flags, "--memory-gib", 1e-9, check=False)
    assert refused.returncode == 2 and "--memory-gib" in refused.stderr
    two_sums = float(re.search(r"take ([\d.e-]+) GiB", refused.stderr)[1])
    shared = compatibility(workspace, *flags, "--memory-gib", 1.02 * two_sums)
    report = json.loads(shared.stdout)
    assert "share the memory of 2" in shared.stderr and (whole["sums"], report["sums"], report["problems"]) == (5, 2, 5)
    assert report["by_position"] == whole["by_position"]
    assert report["over_all"]["cosine"]["mean"] == pytest.approx(whole["over_all"]["cosine"]["mean"], abs=1e-6)


@pytest.mark.parametrize("settings, flags, code, said", [
    ({}, ["--first", "bridge"], 3, "no term 'bridge', which --first names; it has entangled_rollout, inference_reference"),
    ({"objective.preset": "opsd"}, [], 3, "no term 'inference_rollout', which --first names; it has opsd"),
    ({}, ["--second", "privileged_reference"], 3, "score different tokens (self_rollout, self_reference)"),
    ({"objective.preset": "dopd"}, ["--first", "dopd_reverse", "--second", "dopd_surer"], 3, "'dopd_reverse' computes its target from averages"),
    ({"objective.preset": "sdpo", "rollout.group_size": 2}, ["--first", "sdpo", "--second", "sdpo"], 3, "--samples"),
    ({"rollout.source": "dual"}, [], 3, "rollout.source is dual"),
    ({"data.path": "/nowhere.jsonl"}, [], 4, "/nowhere.jsonl"),
    ({}, ["--adapter", "/nowhere"], 4, "/nowhere"),
    ({}, ["--samples", "/nowhere.jsonl"], 4, "/nowhere.jsonl"),
    ({}, ["--positions", "0"], 2, "--positions"),
])
def test_what_cannot_be_compared_is_said_at_once(workspace, tmp_path, settings, flags, code, said):
    output = tmp_path / "positions.jsonl"
    result = compatibility(workspace, "--output", output, *flags, check=False, **settings)
    assert result.returncode == code and said in result.stderr, result.stderr
    assert result.stdout == "" and not output.exists()


@pytest.mark.parametrize("rows, said", [
    ([], "holds no sample"),
    ([{"id": "a", "problem": "p", "rollout_ids": [1, 2, 3, 4], "left_out": True}], "left out of its step"),
    ([{"id": "a", "problem": "p", "rollout_ids": [1, 2]}], "none of 1 problems has an answer with a position between"),
    ([{"id": "a", "problem": "p"}], "samples.jsonl:1"),
    ([{"id": "long", "problem": "p", "rollout_ids": [7] * 100000}], "sample 'long': a view has"),
])
def test_samples_without_a_position_are_named(workspace, tmp_path, rows, said):
    samples = write_samples(tmp_path / "samples.jsonl", rows)
    result = compatibility(workspace, "--samples", samples, check=False)
    assert result.returncode == 4 and said in result.stderr, result.stderr

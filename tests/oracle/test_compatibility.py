"""Compares `dapd probe compatibility` with PyTorch's autograd (transformers + peft) in float32."""

import json
import math

import pytest
import torch

import reference_terms
from conftest import read_jsonl, run_dapd
from test_objective import ALPHA, RANK, Case, copy_fresh_adapter, make_adapter, write_config


def anchor(name, student, teacher, **fields):
    return {"name": name, "student": student, "teacher": teacher, "teacher_weights": "base", "weight": 1, **fields}


ROLLOUT = [anchor("inference_rollout", "self_rollout", "none_rollout"), anchor("privileged_rollout", "self_rollout", "cross_rollout")]
REFERENCE = [anchor("inference_reference", "self_reference", "none_reference"), anchor("privileged_reference", "self_reference", "cross_reference")]
# The terms have two students, an older adapter, a mixture, a support, and fields that belong to a micro-batch.
CROSS = {"view": "cross_rollout", "weights": "base"}
MIXED = {"anchor": {"view": "none_rollout", "weights": "base"}, "delta": [{**CROSS, "factor": 0.5}]}
OTHERS = [
    anchor("entangled", "none_rollout", "cross_rollout", divergence="jensen_shannon", clip=math.inf, teacher_weights="snapshot", skip_tokens=2),
    {"name": "moved", "student": "self_rollout", "target": MIXED, "divergence": "reverse_kl", "clip": math.inf, "weight": 7,
     "support": "student_top_k", "top_k": 50, "reduction": "seq_mean"},
]


def probe(case, *flags, **settings):
    sets = write_config(case.tmp / "config.yaml", case.folder, **settings)
    output = case.tmp / "positions.jsonl"
    result = run_dapd("probe", "compatibility", "--config", case.tmp / "config.yaml", *sets, "--samples", case.batch, "--output", output, "--json", *flags)
    return json.loads(result.stdout), read_jsonl(output)


def gradient(oracle, term, views, position):
    """Returns the loss of one token, and its gradient with respect to all LoRA tensors as one vector."""
    for parameter in oracle.parameters.values():
        parameter.grad = None
    loss = oracle.token_losses(term, views, None)[0][position]
    loss.backward()
    return float(loss.detach()), torch.cat([parameter.grad.flatten().double() for parameter in oracle.parameters.values()])


def cosine(a, b):
    return float(a @ b / (a.norm() * b.norm()))


def mean(vectors):
    return torch.stack(vectors).mean(0)


@pytest.mark.parametrize("family", ["qwen3", "llama"])
@pytest.mark.parametrize("terms, adapters", [(ROLLOUT, True), (ROLLOUT, False), (REFERENCE, True), (OTHERS, True)],
                         ids=["rollout", "fresh", "reference", "others"])
def test_dot_products_and_cosines_equal_autograd(family, terms, adapters, tmp_path):
    case = Case(tmp_path, family, 9)
    flags, given, settings = ["--first", terms[0]["name"], "--second", terms[1]["name"], "--positions", 5, "--seed", 4], {}, {}
    if terms is OTHERS:
        settings["objective.terms"] = reference_terms.yaml(terms)
    if adapters:
        given = {"adapter": make_adapter(tmp_path / "live", case.folder, 1), "snapshot": make_adapter(tmp_path / "snapshot", case.folder, 2)}
        flags += ["--adapter", given["adapter"], "--snapshot", given["snapshot"]]
    report, rows = probe(case, *flags, **settings)
    oracle = reference_terms.Objective(case.base, RANK, ALPHA, terms=terms, **given)
    if not adapters:
        copy_fresh_adapter(case, oracle)
    views = {row["id"]: built for row, built in zip(case.rows, case.views(), strict=True)}

    error = 0.0
    by_problem = {}
    for row in rows:
        sample = views[row["id"]]
        count = sample[terms[0]["student"]][2]
        assert max(1, *(term.get("skip_tokens", 0) for term in terms)) <= row["position"] < count - 1
        ids, start, _ = sample[terms[0]["student"]]
        assert row["token_id"] == ids[start + row["position"]]
        (first_loss, first), (second_loss, second) = (gradient(oracle, term, sample, row["position"]) for term in terms)
        norms = float(first.norm() * second.norm())
        error = max(error, abs(row["dot"] - float(first @ second)) / norms, abs(row["cosine"] - cosine(first, second)))
        for side, loss, vector in (("first", first_loss, first), ("second", second_loss, second)):
            error = max(error, abs(row[side]["norm"] / float(vector.norm()) - 1), abs(row[side]["loss"] - loss))
        by_problem.setdefault(row["problem"], []).append((first, second))
    assert len(rows) == report["positions"] == len({(row["id"], row["position"]) for row in rows})
    assert sorted(by_problem) == list(range(report["problems"])) and all(1 <= len(pairs) <= 5 for pairs in by_problem.values())
    texts = {row["id"]: row["problem"] for row in case.rows}
    assert len({(row["problem"], texts[row["id"]]) for row in rows}) == report["problems"] == report["sums"]

    # Every problem has the same weight: by position, and over all.
    expected = sum(sum(cosine(*pair) for pair in pairs) / len(pairs) for pairs in by_problem.values()) / len(by_problem)
    error = max(error, abs(report["by_position"]["cosine"]["mean"] - expected))
    means = [mean([mean([pair[side] for pair in pairs]) for pairs in by_problem.values()]) for side in (0, 1)]
    norms = float(means[0].norm() * means[1].norm())
    over_all = report["over_all"]
    error = max(error, abs(over_all["cosine"]["mean"] - cosine(*means)), abs(over_all["dot"]["mean"] - float(means[0] @ means[1])) / norms)
    error = max(error, abs(over_all["first_norm"] / float(means[0].norm()) - 1), abs(over_all["second_norm"] / float(means[1].norm()) - 1))
    for interval in (report["by_position"]["cosine"], report["by_position"]["dot"], over_all["cosine"], over_all["dot"]):
        assert interval["low"] <= interval["mean"] <= interval["high"]
    print(f"{family} {terms[0]['name']}: {len(rows)} positions of {report['problems']} problems, error {error:.1e}")
    assert error < 1e-4


def test_a_term_agrees_with_itself(tmp_path):
    case = Case(tmp_path, "qwen2", 6)
    name = ROLLOUT[0]["name"]
    report, rows = probe(case, "--first", name, "--second", name, "--adapter", make_adapter(tmp_path / "live", case.folder, 1))
    cosines = [row["cosine"] for row in rows] + list(report["by_position"]["cosine"].values()) + list(report["over_all"]["cosine"].values())
    error = max(abs(value - 1) for value in cosines)
    print(f"cosine of a term with itself: error {error:.1e}")
    assert error < 1e-6 and report["by_position"]["positive"]["mean"] == 1

"""Compares every divergence, support, target and reduction, through `dapd replay`, with PyTorch's autograd in float32."""

import json
import math

import pytest
from safetensors.torch import load_file

import reference_terms
from test_objective import ALPHA, RANK, Case, compare_gradients, compare_terms, make_adapter

NONE = {"view": "none_rollout", "weights": "base"}
CROSS = {"view": "cross_rollout", "weights": "base"}
OLDER = {"view": "cross_rollout", "weights": "snapshot"}
PLAIN = {"teacher": "cross_rollout", "teacher_weights": "base"}
MIXTURE = {"target": {"anchor": NONE, "delta": [{**CROSS, "factor": 1}, {**OLDER, "factor": -1}], "recentre": True, "soft_clip": 10, "strength": 1.0}}
REGIMES = {
    "agree_likely": {"pass": "first", "factor": 0.6},
    "agree_unlikely": {"pass": "second", "factor": 0.3},
    "first_surer": {"pass": "first", "factor": 0},
    "second_surer": {"pass": "second", "factor": 0.6},
}
ROUTED = {"target": {"first": CROSS, "second": OLDER, "regimes": REGIMES}}
TOP = {"support": "student_top_k", "top_k": 100}

TERMS = {
    "reverse": {**PLAIN, "divergence": "reverse_kl", "clip": math.inf},
    "reverse_clipped": {**PLAIN, "divergence": "reverse_kl"},
    "js": {**PLAIN, "divergence": "jensen_shannon", "beta": 0.5, "clip": math.inf},
    "js_clipped": {**PLAIN, "divergence": "jensen_shannon", "beta": 0.5, "clip": 0.01},
    "reverse_top": {**PLAIN, **TOP, "divergence": "reverse_kl", "clip": math.inf},
    "js_top": {**PLAIN, **TOP, "divergence": "jensen_shannon", "clip": math.inf},
    "js_top_clipped": {**PLAIN, **TOP, "divergence": "jensen_shannon", "clip": 0.01},
    "forward_top_renormalised": {**PLAIN, **TOP, "tail": False, "clip": math.inf},
    "forward_teachers_top": {**PLAIN, "support": "teacher_top_k", "top_k": 20},
    "seq_mean": {**PLAIN, "reduction": "seq_mean"},
    "seq_mean_skip": {**PLAIN, "reduction": "seq_mean", "skip_tokens": 3},
    "keep_masked_skip": {**PLAIN, "reduction": "seq_mean_keep_masked", "skip_tokens": 3},
    "micro_token_skip": {**PLAIN, "skip_tokens": 3},
    "purified": {**MIXTURE, "divergence": "jensen_shannon", "clip": math.inf},
    "dopd_reverse": {**ROUTED, **TOP, "tail": False, "divergence": "reverse_kl", "clip": math.inf, "reduction": "seq_mean"},
}


@pytest.mark.parametrize("name", TERMS)
def test_a_term_equals_autograd(name, tmp_path):
    case = Case(tmp_path, "qwen3", 5)
    term = {"name": name, "student": "none_rollout", "weight": 1.5, **TERMS[name]}
    live = make_adapter(tmp_path / "live", case.folder, 1)
    snapshot = make_adapter(tmp_path / "snapshot", case.folder, 2)
    out = case.replay("--adapter", live, "--snapshot", snapshot, **{"objective.terms": f"[{reference_terms.yaml(term)}]"})
    oracle = reference_terms.Objective(case.base, RANK, ALPHA, adapter=live, snapshot=snapshot, terms=[term])
    expected = oracle.accumulate(case.views(), 2)
    error = compare_terms(json.loads((out / "objective.json").read_text()), expected)
    gradient_error = compare_gradients(load_file(out / "gradients.safetensors"), oracle.gradients())
    print(f"{name}: value {error:.1e}, gradients {gradient_error:.1e}")
    assert error < 1e-5 and gradient_error < 1e-4


def test_terms_of_every_kind_add_up_on_one_student(tmp_path):
    case = Case(tmp_path, "llama", 4)
    terms = [{"name": name, "student": "none_rollout", "weight": 0.1 * (i + 1), **term} for i, (name, term) in enumerate(TERMS.items())]
    live = make_adapter(tmp_path / "live", case.folder, 1)
    snapshot = make_adapter(tmp_path / "snapshot", case.folder, 2)
    out = case.replay("--adapter", live, "--snapshot", snapshot, **{"objective.terms": reference_terms.yaml(terms)})
    oracle = reference_terms.Objective(case.base, RANK, ALPHA, adapter=live, snapshot=snapshot, terms=terms)
    expected = oracle.accumulate(case.views(), 2)
    error = compare_terms(json.loads((out / "objective.json").read_text()), expected)
    gradient_error = compare_gradients(load_file(out / "gradients.safetensors"), oracle.gradients())
    print(f"{len(terms)} terms: values {error:.1e}, gradients {gradient_error:.1e}")
    assert error < 1e-5 and gradient_error < 1e-4

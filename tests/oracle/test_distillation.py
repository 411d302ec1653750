"""Compares the presets for a teacher that reads the problem alone, opd and gkd, with their transcription in PyTorch and
with TRL's own loss."""

import json
import math
import os

import pytest
import torch
from safetensors.torch import load_file

import reference_presets
import reference_terms
from conftest import write_jsonl
from reference_objective import relative, scored_logits
from reference_presets import JENSEN_SHANNON, NONE_PLAIN, term
from test_objective import ALPHA, RANK, Case, compare_gradients, compare_steps, compare_terms, make_adapter

GKD = [term("gkd", **NONE_PLAIN, **JENSEN_SHANNON),
       term("gkd_reference", "none_reference", teacher="none_reference", teacher_weights="base", **JENSEN_SHANNON)]


class TurnsOfGkd(reference_presets.Views):
    """A sample has views of its answer or, if it has none, of its reference alone."""

    def build(self, problem, reference, rollout):
        kept = "_rollout" if rollout else "_reference"
        return {name: view for name, view in super().build(problem, reference, rollout or [0]).items() if name.endswith(kept)}


def gkd_case(tmp_path, count, on_references):
    """The samples of every batch of four are those of a step: `on_references` says which steps have no answers."""
    case = Case(tmp_path, "qwen3", count)
    case.Views = TurnsOfGkd
    case.rows = [{**row, "rollout_ids": [] if on_references(i // 4) else row["rollout_ids"]} for i, row in enumerate(case.rows)]
    write_jsonl(case.batch, case.rows)
    return case


@pytest.mark.parametrize("beta", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("references", [False, True])
def test_gkd_is_its_transcription(beta, references, tmp_path):
    case = gkd_case(tmp_path, 6, lambda step: references)
    live = make_adapter(tmp_path / "live", case.folder, 1)
    out = case.replay("--adapter", live, **{"objective.preset": "gkd", "objective.beta": beta})
    oracle = reference_terms.Objective(case.base, RANK, ALPHA, adapter=live, terms=[{**each, "beta": beta} for each in GKD], temperature=1.0)
    expected = oracle.accumulate(case.views(), 2)
    ours = json.loads((out / "objective.json").read_text())
    error = compare_terms(ours, expected)
    gradient_error = compare_gradients(load_file(out / "gradients.safetensors"), oracle.gradients())
    print(f"gkd, beta {beta}, {'references' if references else 'answers'}: value {error:.1e}, gradients {gradient_error:.1e}")
    assert error < 1e-5 and gradient_error < 1e-4
    tokens = {name: total["tokens"] for name, total in ours["terms"].items()}
    assert (tokens["gkd"] == 0) == references and (tokens["gkd_reference"] == 0) == (not references)


@pytest.mark.parametrize("preset", ["opd", "gkd"])
def test_five_steps_from_another_teacher(preset, tmp_path):
    """A snapshot stands for the other model. gkd's steps take turns."""
    case = gkd_case(tmp_path, 24, lambda step: preset == "gkd" and step in (1, 2, 4))
    snapshot = make_adapter(tmp_path / "snapshot", case.folder, 2)
    of_preset = [term("opd", **NONE_PLAIN, divergence="reverse_kl", clip=math.inf)] if preset == "opd" else GKD
    oracle = reference_terms.Objective(case.base, RANK, ALPHA, terms=[{**each, "teacher_weights": "snapshot"} for each in of_preset],
                                       snapshot=snapshot, temperature=1.0, learning_rate=1e-3, schedule_steps=50)
    compare_steps(case, oracle, 5, "--snapshot", snapshot, **{"objective.preset": preset, "objective.teacher_weights": "snapshot"})


@pytest.mark.parametrize("preset", ["opd", "gkd"])
def test_several_teachers_share_the_weight(preset, tmp_path):
    """Two sets of weights of the student's own model stand for two teachers."""
    case = Case(tmp_path, "qwen3", 6)
    case.Views = TurnsOfGkd
    live = make_adapter(tmp_path / "live", case.folder, 1)
    snapshot = make_adapter(tmp_path / "snapshot", case.folder, 2)
    out = case.replay("--adapter", live, "--snapshot", snapshot,
                      **{"objective.preset": preset, "objective.kappa": 3, "objective.teacher_weights": "[base, snapshot]"})
    of_preset = [term("opd", **NONE_PLAIN, divergence="reverse_kl", clip=math.inf)] if preset == "opd" else GKD
    terms = [{**each, "name": f"{each['name']}_{weights}", "teacher_weights": weights, "weight": 1.5}
             for weights in ("base", "snapshot") for each in of_preset]
    oracle = reference_terms.Objective(case.base, RANK, ALPHA, adapter=live, snapshot=snapshot, terms=terms, temperature=1.0)
    expected = oracle.accumulate(case.views(), 2)
    ours = json.loads((out / "objective.json").read_text())
    assert set(ours["terms"]) == set(expected["terms"])
    error = compare_terms(ours, expected)
    gradient_error = compare_gradients(load_file(out / "gradients.safetensors"), oracle.gradients())
    print(f"{preset} of two teachers: value {error:.1e}, gradients {gradient_error:.1e}")
    assert error < 1e-5 and gradient_error < 1e-4


# TRL's beta, and the settings with the same loss. Both write the teacher's share of the mixture as beta; at the ends TRL
# takes the two KL divergences, which have names of their own here.
OF_TRL = {
    0.0: {"objective.divergence": "forward_kl"},
    0.2: {"objective.beta": 0.2},
    0.5: {},
    0.9: {"objective.beta": 0.9},
    1.0: {"objective.divergence": "reverse_kl"},
}


@pytest.mark.parametrize("beta", OF_TRL)
def test_beta_is_on_the_side_on_which_trl_has_it(beta, tmp_path, monkeypatch):
    monkeypatch.setitem(os.environ, "TRL_EXPERIMENTAL_SILENCE", "1")
    from trl.experimental.gkd import GKDTrainer

    case = gkd_case(tmp_path, 4, lambda step: False)
    live = make_adapter(tmp_path / "live", case.folder, 1)
    out = case.replay("--adapter", live, **{"objective.preset": "gkd", "trainer.micro_batch_size": len(case.rows), **OF_TRL[beta]})
    oracle = reference_terms.Objective(case.base, RANK, ALPHA, adapter=live, terms=GKD, temperature=1.0)
    views = [each["none_rollout"] for each in case.views()]
    student = torch.cat([scored_logits(oracle.model, view) for view in views])
    teacher = torch.cat([oracle.teacher_logits("base", view) for view in views])
    labels = torch.zeros(1, len(student), dtype=torch.long)
    loss = GKDTrainer.generalized_jsd_loss(student[None].double(), teacher[None].double(), labels=labels, beta=beta)
    loss.backward()
    ours = json.loads((out / "objective.json").read_text())["terms"]["gkd"]["value"]
    error = relative(ours, float(loss.detach()))
    gradient_error = compare_gradients(load_file(out / "gradients.safetensors"), oracle.gradients())
    print(f"TRL with beta {beta}: value {error:.1e}, gradients {gradient_error:.1e}")
    assert error < 1e-5 and gradient_error < 1e-4

"""Compares the preset sdpo, through `dapd replay` and `dapd views`, with its transcription in PyTorch, in float32."""

import json
import math
import random

import pytest
from safetensors.torch import load_file

import reference_sdpo
import reference_terms
from conftest import read_jsonl, run_dapd, write_jsonl
from test_objective import ALPHA, RANK, Case, compare_gradients, compare_terms, copy_fresh_adapter, make_adapter, write_config

GROUP = 4
TERM = {"name": "sdpo", "student": "none_rollout", "teacher": "sibling_rollout", "teacher_weights": "ema", "weight": 1.0,
        "divergence": "jensen_shannon", "beta": 0.5, "clip": math.inf, "support": "student_top_k", "top_k": 100, "tail": True,
        "reduction": "seq_mean_keep_masked", "importance": "token", "importance_cap": 2.0}
# Results of the answers by group; the expected result is 7. Some answers have thoughts, some have no result.
RESULTS = [
    ["7", "3", "<think>\n\\boxed{7}</think>\u00a0\u3000\n\n\\boxed{7}", None],
    ["1", "2", None, "3"],
    [None, "5", "so \\boxed{7}.", "<think>hm</think> \\boxed{6}"],
]


def text_of(result):
    if result is None:
        return "I do not know"
    return result if "boxed" in result else f"It is \\boxed{{{result}}}"


def group_rows(case, groups, rng):
    rows = []
    for number, results in enumerate(groups):
        for result in results:
            ids = case.tokenizer(text_of(result), add_special_tokens=False)["input_ids"] + rng.choice([[], [case.eos], [case.eos, case.pad]])
            # They are about as probable as the models make them: some ratios are cut at 2, others are not.
            logprobs = [-math.log(len(case.tokenizer)) + rng.uniform(-1.5, 1.0) for _ in ids]
            rows.append({"id": f"r{len(rows)}", "problem": f"What is {number} + x?", "reference": "so 7", "answer": "7",
                         "rollout_ids": ids, "sampler_logprobs": logprobs})
    return rows


def make_case(tmp_path, groups=RESULTS, family="qwen3"):
    case = Case(tmp_path, family, 1)
    case.rows = group_rows(case, groups, random.Random(3))
    write_jsonl(case.batch, case.rows)
    return case


SETTINGS = {"objective.preset": "sdpo", "rollout.group_size": GROUP, "trainer.batch_size": 4 * GROUP}


@pytest.mark.parametrize("feedback", ["never", "without_sibling", "always"])
def test_the_self_teachers_view(feedback, tmp_path):
    case = make_case(tmp_path)
    sets = write_config(tmp_path / "config.yaml", case.folder, **SETTINGS, **{"objective.sdpo.feedback": feedback})
    run_dapd("views", "--config", tmp_path / "config.yaml", *sets, "--input", case.batch, "--output", tmp_path / "views")
    expected = reference_sdpo.Views(case.tokenizer).build_groups(case.rows, GROUP, feedback)
    shown = 0
    for ours, views in zip(read_jsonl(tmp_path / "views"), expected, strict=True):
        views.pop("sampler_logprobs")
        assert set(ours["views"]) == set(views)
        for name, (ids, start, count) in views.items():
            got = ours["views"][name]
            assert (got["input_ids"], got["scored_from"], got["scored_count"]) == (ids, start, count), name
        shown += "sibling_rollout" in views
    print(f"{feedback}: {shown} of {len(expected)} samples have a teacher")
    # No answer of the second group is right, and one has no box; a wrong box gives no feedback.
    assert shown == {"never": 7, "without_sibling": 8, "always": 8}[feedback]


@pytest.mark.parametrize("feedback", ["without_sibling", "always"])
def test_what_the_grader_says_of_answers_that_were_cut_off(feedback, tmp_path):
    case = make_case(tmp_path)
    for i in (0, 5, 6):  # a right answer, a wrong one, and one without a box
        case.rows[i]["finish_reason"] = "length"
    write_jsonl(case.batch, case.rows)
    sets = write_config(tmp_path / "config.yaml", case.folder, **SETTINGS, **{"objective.sdpo.feedback": feedback})
    run_dapd("views", "--config", tmp_path / "config.yaml", *sets, "--input", case.batch, "--output", tmp_path / "views")
    told = 0
    for ours, views in zip(read_jsonl(tmp_path / "views"), reference_sdpo.Views(case.tokenizer).build_groups(case.rows, GROUP, feedback), strict=True):
        views.pop("sampler_logprobs")
        assert set(ours["views"]) == set(views)
        if "sibling_rollout" in views:
            assert ours["views"]["sibling_rollout"]["input_ids"] == views["sibling_rollout"][0]
            told += "exceeded the maximum length" in case.tokenizer.decode(views["sibling_rollout"][0])
    print(f"{feedback}: {told} answers are told that they were cut off")
    assert told == {"without_sibling": 2, "always": 3}[feedback]


def test_a_sibling_of_thoughts_alone_teaches(tmp_path):
    case = make_case(tmp_path, [["<think>\\boxed{7}</think>\u00a0", "3", "1", "2"]])
    for row, correct in zip(case.rows, [True, False, False, False], strict=True):
        row["correct"] = correct
    write_jsonl(case.batch, case.rows)
    sets = write_config(tmp_path / "config.yaml", case.folder, **SETTINGS)
    run_dapd("views", "--config", tmp_path / "config.yaml", *sets, "--input", case.batch, "--output", tmp_path / "views")
    expected = reference_sdpo.Views(case.tokenizer).build_groups(case.rows, GROUP)
    taught = [row["views"].get("sibling_rollout", {}).get("input_ids") for row in read_jsonl(tmp_path / "views")]
    assert taught == [views["sibling_rollout"][0] if "sibling_rollout" in views else None for views in expected]
    assert [ids is not None for ids in taught] == [False, True, True, True]


@pytest.mark.parametrize("name, settings, change", [
    ("as released", {}, {}),
    ("reverse", {"objective.sdpo.divergence": "reverse_kl", "objective.sdpo.top_k": 20, "objective.sdpo.feedback": "without_sibling"},
     {"divergence": "reverse_kl", "top_k": 20}),
    ("feedback", {"objective.sdpo.feedback": "always", "trainer.micro_batch_size": 1}, {}),
])
def test_values_and_gradients(name, settings, change, tmp_path):
    case = make_case(tmp_path, family="llama" if name == "reverse" else "qwen3")
    live = make_adapter(tmp_path / "live", case.folder, 1)
    out = case.replay("--adapter", live, **SETTINGS, **settings)
    oracle = reference_terms.Objective(case.base, RANK, ALPHA, adapter=live, terms=[{**TERM, **change}], temperature=1.0, ema_rate=0.05)
    views = reference_sdpo.Views(case.tokenizer).build_groups(case.rows, GROUP, settings.get("objective.sdpo.feedback", "never"))
    expected = oracle.accumulate(views, settings.get("trainer.micro_batch_size", 2))
    error = compare_terms(json.loads((out / "objective.json").read_text()), expected)
    gradient_error = compare_gradients(load_file(out / "gradients.safetensors"), oracle.gradients())
    print(f"sdpo, {name}: value {error:.1e}, gradients {gradient_error:.1e}")
    assert expected["loss"] > 0 and error < 1e-5 and gradient_error < 1e-4


@pytest.mark.parametrize("importance", ["token", "sequence"])
def test_importance_of_an_answer_whose_teacher_is_always_there(importance, tmp_path):
    case = make_case(tmp_path)
    term = {"name": "t", "student": "none_rollout", "teacher": "cross_rollout", "teacher_weights": "base", "weight": 1.5,
            "reduction": "seq_mean", "skip_tokens": 3, "importance": importance, "importance_cap": 1.5}
    live = make_adapter(tmp_path / "live", case.folder, 1)
    out = case.replay("--adapter", live, **{"objective.terms": f"[{reference_terms.yaml(term)}]"})
    oracle = reference_terms.Objective(case.base, RANK, ALPHA, adapter=live, terms=[term])
    expected = oracle.accumulate(reference_sdpo.Views(case.tokenizer).build_groups(case.rows, GROUP), 2)
    error = compare_terms(json.loads((out / "objective.json").read_text()), expected)
    gradient_error = compare_gradients(load_file(out / "gradients.safetensors"), oracle.gradients())
    print(f"importance by {importance}: value {error:.1e}, gradients {gradient_error:.1e}")
    assert error < 1e-5 and gradient_error < 1e-4


@pytest.mark.parametrize("measured", [False, True])
def test_five_steps_of_which_one_has_no_teacher(measured, tmp_path):
    """A step has one group. If none of its answers is right, weights, moments and moving average stay, also if a term
    without a weight measures the group."""
    order = [0, 2, 1, 0, 2]
    case = make_case(tmp_path, [RESULTS[i] for i in order])
    settings = {"trainer.batch_size": GROUP, "trainer.learning_rate": 1e-3, "trainer.schedule_steps": 50, "trainer.steps": 5}
    if measured:
        other = {"name": "measured", "student": "none_rollout", "teacher": "cross_rollout", "teacher_weights": "base", "weight": 0.0}
        settings["objective.terms"] = reference_terms.yaml([TERM, other])
    out = case.replay("--apply", **{**SETTINGS, **settings})
    oracle = reference_terms.Objective(case.base, RANK, ALPHA, terms=[TERM], temperature=1.0, learning_rate=1e-3, schedule_steps=50, ema_rate=0.05)
    copy_fresh_adapter(case, oracle)
    start = oracle.copy_parameters()
    views = reference_sdpo.Views(case.tokenizer).build_groups(case.rows, GROUP)
    for step, line in enumerate(read_jsonl(out / "metrics.jsonl")):
        expected = oracle.accumulate(views[GROUP * step : GROUP * (step + 1)], 2)
        if order[step] == 1:
            assert line["loss"] == 0 and line["gradient_norm"] == 0
            oracle.steps += 1
            continue
        norm, rate = oracle.step()
        assert line["learning_rate"] == pytest.approx(rate, rel=1e-12)
        assert line["loss"] == pytest.approx(expected["loss"], rel=1e-3)
        assert line["gradient_norm"] == pytest.approx(norm, rel=1e-3)
    ours = load_file(out / "adapter" / "adapter_model.safetensors")
    difference = sum((ours[n] - p.detach()).square().sum() for n, p in oracle.parameters.items()).sqrt()
    update = sum((start[n] - p.detach()).square().sum() for n, p in oracle.parameters.items()).sqrt()
    print(f"adapter after five steps differs by {difference / update:.1e} of the update's norm {update:.3f}")
    assert difference / update < 1e-3


def test_a_group_that_is_not_whole_is_refused(tmp_path):
    case = make_case(tmp_path)
    sets = write_config(tmp_path / "config.yaml", case.folder, **SETTINGS)

    def refused(rows):
        write_jsonl(case.batch, rows)
        result = run_dapd("replay", "--config", tmp_path / "config.yaml", "--batch", case.batch, "--output", tmp_path / "out", *sets, check=False)
        assert result.returncode == 4, result.stderr
        return result.stderr

    assert "11 samples do not make whole groups of rollout.group_size (4)" in refused(case.rows[:-1])
    case.rows[1]["problem"] = "another"
    assert "'r1' answers a different problem" in refused(case.rows)

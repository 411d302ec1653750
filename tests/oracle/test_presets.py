"""Compares every baseline's preset, through `dapd replay` and `dapd views`, with its transcription in PyTorch."""

import json
import math

import pytest
from safetensors.torch import load_file

import reference_presets
import reference_terms
from conftest import read_jsonl, run_dapd, write_jsonl
from reference_objective import DAPD_TERMS
from reference_presets import JENSEN_SHANNON, PLAIN, PRESETS, term
from test_objective import ALPHA, RANK, Case, compare_gradients, compare_steps, compare_terms, make_adapter, write_config

# Choices that the papers leave open and that a user may make: settings, terms, temperature.
OTHERS = {
    "opsd_reverse": ({"objective.preset": "opsd", "objective.divergence": "reverse_kl", "objective.kappa": 1.5, "objective.reduction": "seq_mean"},
                     [term("opsd", **PLAIN, divergence="reverse_kl", reduction="seq_mean") | {"weight": 1.5}], 1.1),
    "opsd_teachers_top": ({"objective.preset": "opsd_v1", "objective.support": "teacher_top_k", "objective.top_k": 20, "objective.tail": "false",
                           "objective.teacher_weights": "live"},
                          [term("opsd", teacher="cross_rollout", teacher_weights="live", **JENSEN_SHANNON, support="teacher_top_k", top_k=20, tail=False)], 1.1),
    "sdft_paper": ({"objective.preset": "sdft", "objective.divergence": "reverse_kl", "objective.temperature": 1.1, "objective.skip_tokens": 0},
                   [term("sdft", teacher="demonstration_rollout", teacher_weights="ema", divergence="reverse_kl", clip=math.inf, reduction="seq_mean")], 1.1),
    "purified_clipped": ({"objective.preset": "purified_opsd", "objective.component_clip": 0.01, "objective.purified.soft_clip": 2,
                          "objective.purified.beta": 0.5, "objective.purified.recentre": "false"},
                         [term("purified_opsd", **reference_presets.purified(False, 2, 0.5), divergence="jensen_shannon", clip=0.01)], 1.1),
    "dopd_tail": ({"objective.preset": "dopd", "objective.tail": "true", "objective.top_k": 30, "objective.dopd.likely_factor": 0.9,
                   "objective.dopd.unlikely_factor": 0.1, "objective.dopd.trim": 0.2},
                  reference_presets.dopd(0.9, 0.1, 0.2, 30, True), 1.1),
    "dopd_skipping": ({"objective.preset": "dopd", "objective.skip_tokens": 3}, [{**each, "skip_tokens": 3} for each in reference_presets.dopd()], 1.1),
}
CASES = {name: ({"objective.preset": name}, *rest) for name, rest in PRESETS.items()} | OTHERS


def compare(case, out, oracle):
    expected = oracle.accumulate(case.views(), 2)
    ours = json.loads((out / "objective.json").read_text())
    assert set(ours["terms"]) == set(expected["terms"])
    error = compare_terms(ours, expected)
    for name, total in expected["terms"].items():
        assert ours["terms"][name]["weight"] == total["weight"]
    gradient_error = compare_gradients(load_file(out / "gradients.safetensors"), oracle.gradients())
    return error, gradient_error


@pytest.mark.parametrize("name", CASES)
def test_a_preset_is_its_transcription(name, tmp_path):
    settings, terms, temperature = CASES[name]
    case = Case(tmp_path, "qwen3", 6)
    case.Views = reference_presets.views_of(settings["objective.preset"])
    live = make_adapter(tmp_path / "live", case.folder, 1)
    out = case.replay("--adapter", live, **settings)
    oracle = reference_terms.Objective(case.base, RANK, ALPHA, adapter=live, terms=terms, temperature=temperature)
    error, gradient_error = compare(case, out, oracle)
    print(f"{name}: value {error:.1e}, gradients {gradient_error:.1e}")
    assert error < 1e-5 and gradient_error < 1e-4


# A fresh student is its base, which is all that opd compares it with: its first gradient is rounding (test_distillation.py).
@pytest.mark.parametrize("name", [name for name in PRESETS if name != "opd"])
def test_five_steps_of_a_preset(name, tmp_path):
    terms, temperature = PRESETS[name]
    case = Case(tmp_path, "qwen3", 24)
    case.Views = reference_presets.views_of(name)
    oracle = reference_terms.Objective(
        case.base, RANK, ALPHA, terms=terms, temperature=temperature, learning_rate=1e-3, schedule_steps=50, ema_rate=0.3
    )
    compare_steps(case, oracle, 5, **{"objective.preset": name, "teacher.ema_rate": 0.3})


def test_sdfts_loss_does_not_depend_on_the_micro_batch(tmp_path):
    """SDFT's code has micro-batches of one: an answer whose tokens are all skipped counts as 0 there, and is not left
    out."""
    case = Case(tmp_path, "qwen3", 6)
    case.Views = reference_presets.views_of("sdft")
    case.rows = [{**row, "rollout_ids": [9, 8, 7, 6, 5, 4][:count]} for row, count in zip(case.rows, (6, 3, 1, 5), strict=False)]
    write_jsonl(case.batch, case.rows)
    live = make_adapter(tmp_path / "live", case.folder, 1)
    terms, temperature = PRESETS["sdft"]
    views = case.views()
    losses = []
    for size in (1, 2, 4):
        out = case.replay("--adapter", live, **{"objective.preset": "sdft", "trainer.micro_batch_size": size})
        losses.append(json.loads((out / "objective.json").read_text())["loss"])
    oracle = reference_terms.Objective(case.base, RANK, ALPHA, adapter=live, terms=terms, temperature=temperature)
    expected = oracle.accumulate(views, 1)["loss"]
    print(f"sdft with micro-batches of 1, 2 and 4: {losses}, its code {expected}")
    assert losses == pytest.approx([expected] * 3, rel=1e-5)


@pytest.mark.parametrize("preset", ["opsd", "opsd_v1"])
def test_opsds_moving_average_begins_after_the_first_update(preset, tmp_path):
    case = Case(tmp_path, "qwen3", 16)
    case.Views = reference_presets.views_of(preset)
    terms, temperature = PRESETS[preset]
    oracle = reference_terms.Objective(
        case.base, RANK, ALPHA, terms=[{**each, "teacher_weights": "ema"} for each in terms], temperature=temperature,
        learning_rate=1e-3, schedule_steps=50, ema_rate=0.1, ema_from_first_update=True)
    compare_steps(case, oracle, 3, **{"objective.preset": preset, "objective.teacher_weights": "ema", "teacher.ema_rate": 0.1})


def test_sdfts_prompts_keep_their_last_tokens(tmp_path):
    case = Case(tmp_path, "qwen3", 20)

    class Views(reference_presets.SdftViews):
        max_prompt_length = 60

    builder = Views(case.tokenizer)
    ours = views_by_dapd(case, **{"objective.preset": "sdft", "prompts.max_tokens": 60})
    cut = 0
    for row, views in zip(case.rows, ours, strict=True):
        expected = builder.build(row["problem"], row["reference"], row["rollout_ids"])
        for name in ("none_rollout", "demonstration_rollout"):
            assert views[name] == expected[name]
            cut += views[name][1] == 60
    print(f"{cut} of {2 * len(ours)} prompts are cut")
    assert cut > len(ours)


THINKING_REFERENCES = ["<think>\nhm\n</think>\n\nYes.", "<think>hm</think>Yes.", "<think>\n\n</think>\n\nYes.", "No thoughts.", "<think>open"]


class ThinkingViews(reference_presets.Views):
    thinking = True


def dapd_oracle(case, **given):
    return reference_terms.Objective(case.base, RANK, ALPHA, **given, terms=[
        {"name": name, "student": student, "teacher": teacher, "teacher_weights": weights, "weight": weight, "clip": 0.05}
        for name, student, teacher, weights, weight in DAPD_TERMS])


@pytest.mark.parametrize("self_rollout", ["append", "template"])
def test_dapd_on_thinking_answers(self_rollout, tmp_path):
    """Answers are sampled with thinking on, and references are scored with their thoughts."""
    case = Case(tmp_path, "qwen3", 10)
    thoughts = case.tokenizer("<think>\nso\n</think>\n\n", add_special_tokens=False)["input_ids"]
    case.rows = [{**row, "reference": THINKING_REFERENCES[i % len(THINKING_REFERENCES)], "rollout_ids": thoughts + row["rollout_ids"]}
                 for i, row in enumerate(case.rows)]
    write_jsonl(case.batch, case.rows)
    case.Views = ThinkingViews
    settings = {"prompts.thinking": "true", "objective.self_rollout": self_rollout}
    expected = case.views(self_rollout=self_rollout)
    unread = {"demonstration_rollout", "probe_rollout"}
    for ours, views in zip(views_by_dapd(case, **settings), expected, strict=True):
        assert ours == {name: view for name, view in views.items() if name not in unread}
    scored = [case.tokenizer.decode(ids[start : start + count]) for ids, start, count in (views["none_reference"] for views in expected)]
    assert scored[0].startswith("<think>\nhm\n</think>\n\nYes.") and scored[3].startswith("No thoughts.")
    live = make_adapter(tmp_path / "live", case.folder, 1)
    out = case.replay("--adapter", live, **settings)
    oracle = dapd_oracle(case, adapter=live)
    totals = oracle.accumulate(expected, 2)
    ours = json.loads((out / "objective.json").read_text())
    error = compare_terms(ours, totals)
    gradient_error = compare_gradients(load_file(out / "gradients.safetensors"), oracle.gradients())
    print(f"DAPD on thinking answers, {self_rollout}: value {error:.1e}, gradients {gradient_error:.1e}")
    assert error < 1e-5 and gradient_error < 1e-4


def test_a_run_on_thinking_answers_of_thousands_of_tokens(tmp_path):
    """All three services run; the first step's loss equals the transcription's loss over the sampled answers."""
    case = Case(tmp_path, "qwen3", 1, max_position_embeddings=16384)
    thoughts = "<think>\n" + "so 1 + 2 = 3; " * 90 + "\n</think>\n\nIt is \\boxed{3}."
    write_jsonl(tmp_path / "problems.jsonl", [{"id": "p", "problem": "What is 1 + 2?", "solution": thoughts}])
    sets = write_config(tmp_path / "run.yaml", case.folder, **{
        "data.path": tmp_path / "problems.jsonl", "run.name": "thinking", "run.output_dir": tmp_path / "runs", "prompts.thinking": "true",
        "rollout.max_new_tokens": 2000, "rollout.top_k": 1, "objective.max_reference_tokens": 4000, "trainer.batch_size": 1,
        "trainer.micro_batch_size": 1, "trainer.steps": 1, "trainer.pack_tokens": 16384})
    run_dapd("run", tmp_path / "run.yaml", *sets)
    run = tmp_path / "runs" / "thinking"
    step = read_jsonl(run / "metrics.jsonl")[0]
    samples = read_jsonl(run / "samples" / "step-000001.jsonl")
    builder = ThinkingViews(case.tokenizer, max_reference_tokens=4000, max_new_tokens=2000)
    views = [builder.build(row["problem"], row["reference"], row["rollout_ids"]) for row in samples]
    ids, start, count = views[0]["none_reference"]
    assert case.tokenizer.decode(ids[start : start + count]).startswith("<think>\nso 1 + 2") and count > 1000
    assert not case.tokenizer.decode(views[0]["none_rollout"][0][: views[0]["none_rollout"][1]]).endswith("</think>\n\n")
    expected = dapd_oracle(case).accumulate(views, 1)
    print(f"answers of {[len(row['rollout_ids']) for row in samples]} tokens, references of {count}: loss {step['loss']:.6f}, "
          f"transcription {expected['loss']:.6f}")
    assert max(len(row["rollout_ids"]) for row in samples) > 1000
    assert step["loss"] == pytest.approx(expected["loss"], rel=1e-4)


def test_supervised_fine_tuning_needs_no_rollout(tmp_path):
    case = Case(tmp_path, "llama", 4)
    live = make_adapter(tmp_path / "live", case.folder, 1)
    with_rollouts = (case.replay("--adapter", live, **{"objective.preset": "sft"}) / "gradients.safetensors").read_bytes()
    write_jsonl(case.batch, [{**row, "rollout_ids": []} for row in case.rows])
    without = (case.replay("--adapter", live, **{"objective.preset": "sft"}) / "gradients.safetensors").read_bytes()
    assert with_rollouts == without


@pytest.mark.parametrize("reduction", ["micro_token", "seq_mean_keep_masked"])
def test_an_answer_of_padding_alone_is_left_out_where_no_term_scores_references(reduction, tmp_path):
    """A run leaves it out: alone in a micro-batch it does not count; beside another answer it does not enter the
    divisor."""
    case = Case(tmp_path, "qwen3", 9)
    case.rows = case.rows[:6]
    for i in (0, 1, 3):
        case.rows[i]["rollout_ids"] = [case.pad, case.pad]
    write_jsonl(case.batch, case.rows)
    live = make_adapter(tmp_path / "live", case.folder, 1)
    out = case.replay("--adapter", live, **{"objective.preset": "opsd", "objective.reduction": reduction})
    oracle = reference_terms.Objective(case.base, RANK, ALPHA, adapter=live, terms=[term("opsd", **PLAIN, reduction=reduction)])
    views = case.views()
    alone, pair = oracle.accumulate(views[2:3], 2), oracle.accumulate(views[4:], 2)
    ours = json.loads((out / "objective.json").read_text())
    assert ours["loss"] == pytest.approx((alone["loss"] + pair["loss"]) / 2, rel=1e-5)
    gradients = {name: gradient / 2 for name, gradient in oracle.gradients().items()}
    assert compare_gradients(load_file(out / "gradients.safetensors"), gradients) < 1e-4


def test_shares_of_the_regimes_are_those_of_the_tokens(tmp_path):
    case = Case(tmp_path, "qwen3", 6)
    case.Views = reference_presets.Views
    live = make_adapter(tmp_path / "live", case.folder, 1)
    out = case.replay("--adapter", live, **{"objective.preset": "dopd"})
    terms, temperature = PRESETS["dopd"]
    oracle = reference_terms.Objective(case.base, RANK, ALPHA, adapter=live, terms=terms, temperature=temperature)
    views = case.views()
    groups = [views[i : i + 2] for i in range(0, len(views), 2)]
    names = [name for group in groups for answer in oracle.routes(terms[0], group) for name in answer]
    ours = json.loads((out / "objective.json").read_text())["terms"]
    for of_term in ours.values():
        assert of_term["regimes"] == {regime: pytest.approx(names.count(regime) / len(names)) for regime in terms[0]["target"]["regimes"]}
    print({regime: f"{share:.2f}" for regime, share in ours["dopd_reverse"]["regimes"].items()})
    # A fresh adapter changes nothing: both passes agree to the bit, and a tie goes to the teacher.
    fresh = json.loads((case.replay(**{"objective.preset": "dopd"}) / "objective.json").read_text())["terms"]
    assert fresh["dopd_surer"]["regimes"]["first_surer"] == 1.0


def views_by_dapd(case, **settings):
    sets = write_config(case.tmp / "views.yaml", case.folder, **settings)
    run_dapd("views", "--config", case.tmp / "views.yaml", *sets, "--input", case.batch, "--output", case.tmp / "views.jsonl")
    return [{name: (v["input_ids"], v["scored_from"], v["scored_count"]) for name, v in row["views"].items()}
            for row in read_jsonl(case.tmp / "views.jsonl")]


@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize("preset, extra", [("dapd", None), ("opsd_v1", None), ("sdft", "demonstration_rollout"), ("purified_opsd", "probe_rollout")])
def test_views_of_a_preset(preset, extra, thinking, tmp_path):
    case = Case(tmp_path, "qwen3", 20)
    builder = reference_presets.views_of(preset)(case.tokenizer)
    builder.privileged_thinking = thinking
    ours = views_by_dapd(case, **{"objective.preset": preset, "prompts.privileged_thinking": str(thinking).lower()})
    for row, views in zip(case.rows, ours, strict=True):
        expected = builder.build(row["problem"], row["reference"], row["rollout_ids"])
        unread = {"demonstration_rollout", "probe_rollout"} - {extra}
        assert views == {name: view for name, view in expected.items() if name not in unread}


def test_prompts_are_those_of_the_configuration(tmp_path):
    case = Case(tmp_path, "qwen3", 20)

    class Views(reference_presets.SdftViews):
        def none_message(self, problem):
            return f"Write {{code}} for {problem}: {{}}"

        def privileged_message(self, problem, shown):
            return f"{self.none_message(problem)}\nAnswer: {{{shown}}} \\boxed{{\\frac{{1}}{{2}}}}"

        def demonstration_message(self, problem, shown):
            return f"{shown}{problem}{shown}"

    prompts = {"none": "Write {{code}} for {problem}: {}", "privileged": "{prompt}\nAnswer: {{{reference}}} \\boxed{\\frac{1}{2}}",
               "demonstration": "{reference}{problem}{reference}"}
    ours = views_by_dapd(case, **{"objective.preset": "sdft"}, **{f"prompts.{name}": json.dumps(text) for name, text in prompts.items()})
    builder = Views(case.tokenizer)
    for row, views in zip(case.rows, ours, strict=True):
        expected = builder.build(row["problem"], row["reference"], row["rollout_ids"])
        assert views == {name: view for name, view in expected.items() if name != "probe_rollout"}

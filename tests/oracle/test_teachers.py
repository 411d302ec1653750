"""Compares objectives with further teachers, models of other widths and with other numbers of padding rows, with transformers:
through `dapd replay` and through the services."""

import json
import math

import peft
import pytest
import transformers
from safetensors.torch import load_file

import models
import reference_terms
from conftest import read_jsonl, run_dapd
from test_objective import ALPHA, RANK, Case, compare_gradients, compare_terms, copy_fresh_adapter, make_adapter, write_config
from test_slow_family import problems

NONE = {"student": "none_rollout", "teacher": "none_rollout"}
CROSS = {"student": "none_rollout", "teacher": "cross_rollout"}
TERMS = {
    "reverse": {**NONE, "teacher_weights": "big", "divergence": "reverse_kl", "clip": math.inf},
    "cross": {**CROSS, "teacher_weights": "big"},
    "js": {**NONE, "teacher_weights": "big", "divergence": "jensen_shannon", "beta": 0.3, "clip": math.inf},
    "reference": {"student": "none_reference", "teacher": "cross_reference", "teacher_weights": "big"},
    "top": {**NONE, "teacher_weights": "big", "divergence": "reverse_kl", "support": "student_top_k", "top_k": 40, "clip": math.inf},
    "own": {**CROSS, "teacher_weights": "snapshot"},
    "small": {**NONE, "teacher_weights": "small", "divergence": "reverse_kl", "clip": math.inf},
    "mixture": {"student": "none_rollout", "clip": math.inf, "divergence": "reverse_kl", "target": {
        "anchor": {"view": "none_rollout", "weights": "base"}, "recentre": True, "soft_clip": 10,
        "delta": [{"view": "cross_rollout", "weights": "big", "factor": 1}, {"view": "none_rollout", "weights": "small", "factor": -1}]}},
}
# The student's vocabulary is padded to 320 rows.
BIG = dict(hidden_size=96, intermediate_size=160, seed=11)
SMALL = dict(hidden_size=48, intermediate_size=80, vocab_size=288, tied=False, seed=12)


def teacher(folder, family, adapter=None, **sizes):
    """Returns a teacher's fields, and its model in transformers."""
    model = models.make_model(folder, family, **sizes)
    fields = {"path": folder}
    if adapter is not None:
        fields["adapter"] = make_adapter(adapter, folder, 21)
        model = peft.PeftModel.from_pretrained(model, adapter).eval()
    return fields, model


def teachers_setting(teachers, **more):
    return reference_terms.yaml([{"name": name, **fields, **more} for name, (fields, _) in teachers.items()])


def compare(case, terms, teachers, tmp_path, rows=None):
    """Compares values and gradients with autograd's, also by the teachers that rows name."""
    live = make_adapter(tmp_path / "live", case.folder, 1)
    snapshot = make_adapter(tmp_path / "snapshot", case.folder, 2)
    out = case.replay("--adapter", live, "--snapshot", snapshot,
                      **{"teachers": teachers_setting(teachers), "objective.terms": reference_terms.yaml(terms), **(rows or {})})
    oracle = reference_terms.Objective(case.base, RANK, ALPHA, adapter=live, snapshot=snapshot, terms=terms)
    oracle.teachers = {name: model for name, (_, model) in teachers.items()}
    views = case.views()
    if rows is not None:
        for view, row in zip(views, case.rows):
            view["teacher"] = row["teacher"]
    expected = oracle.accumulate(views, 2)
    error = compare_terms(json.loads((out / "objective.json").read_text()), expected)
    gradient_error = compare_gradients(load_file(out / "gradients.safetensors"), oracle.gradients())
    print(f"{[term['name'] for term in terms]}: values {error:.1e}, gradients {gradient_error:.1e}")
    assert error < 1e-5 and gradient_error < 1e-4
    for term in terms if rows is not None else ():
        found = json.loads((out / "objective.json").read_text())["terms"][term["name"]]["teachers"]
        assert found.keys() == {view["teacher"] for view in views}
        for name, measured in found.items():
            alone = [view for view in views if view["teacher"] == name]
            expected = oracle.accumulate(alone, len(alone))["terms"][term["name"]]  # one micro-batch: the mean over all tokens
            print(f"{term['name']} from {name}: {measured['unclipped']:.6f} of {expected['value']:.6f} over {measured['tokens']} tokens")
            assert measured["tokens"] == expected["tokens"]
            assert measured["unclipped"] == pytest.approx(expected["value"], rel=1e-5)


@pytest.mark.parametrize("vocabulary", [288, 320, 448])
def test_a_wider_teacher_equals_autograd(vocabulary, tmp_path):
    case = Case(tmp_path, "qwen3", 4)
    teachers = {"big": teacher(tmp_path / "big", "qwen3", vocab_size=vocabulary, **BIG)}
    compare(case, [{"name": "reverse", "weight": 1.5, **TERMS["reverse"]}], teachers, tmp_path)


def test_teachers_of_several_families_add_up_on_one_student(tmp_path):
    case = Case(tmp_path, "qwen3", 4)
    teachers = {"big": teacher(tmp_path / "big", "llama", tmp_path / "big_adapter", vocab_size=448, **BIG),
                "small": teacher(tmp_path / "small", "qwen2", **SMALL)}
    compare(case, [{"name": name, "weight": 0.1 * (i + 1), **term} for i, (name, term) in enumerate(TERMS.items())], teachers, tmp_path)


def test_a_teacher_whose_logits_are_capped_equals_autograd(tmp_path):
    case = Case(tmp_path, "qwen3", 4)
    teachers = {"big": teacher(tmp_path / "big", "gemma2", vocab_size=352, seed=13)}
    compare(case, [{"name": name, "weight": 0.5, **TERMS[name]} for name in ("reverse", "cross")], teachers, tmp_path)


def test_each_row_has_the_teacher_that_it_names(tmp_path):
    case = Case(tmp_path, "qwen3", 6)
    teachers = {"big": teacher(tmp_path / "big", "llama", vocab_size=352, **BIG), "small": teacher(tmp_path / "small", "qwen2", **SMALL)}
    for i, row in enumerate(case.rows):
        row["teacher"] = ["big", "base", "small"][i % 3]
    case.batch.write_text("".join(json.dumps(row) + "\n" for row in case.rows))
    terms = [{"name": "routed", "weight": 1.0, **NONE, "teacher_weights": "row", "divergence": "reverse_kl", "clip": math.inf}]
    compare(case, terms, teachers, tmp_path, rows={"data.teacher_column": "teacher"})


STEPS, BATCH, MICRO_BATCH = 2, 4, 2


def test_a_run_with_a_wider_teacher(tmp_path):
    """The services: the teacher's worker sends its hidden states, and the trainer has its head."""
    case = Case(tmp_path, "qwen3", 1)
    big, model = teacher(tmp_path / "big", "llama", tmp_path / "big_adapter", vocab_size=448, **BIG)
    terms = [{"name": "opd", "weight": 1.0, **TERMS["reverse"]}, {"name": "own", "weight": 0.5, **TERMS["own"]}]
    settings = {
        "data.path": problems(tmp_path, "train", 20), "evaluation.path": problems(tmp_path, "held_out", 4), "evaluation.kl_problems": 2,
        "objective.max_reference_tokens": 48, "rollout.max_new_tokens": 16, "rollout.slots": 4, "run.name": "run",
        "run.output_dir": tmp_path / "runs", "run.num_threads": 1, "trainer.batch_size": BATCH, "trainer.micro_batch_size": MICRO_BATCH,
        "trainer.steps": STEPS, "trainer.schedule_steps": 50, "trainer.learning_rate": 1e-3, "trainer.max_grad_norm": 0.1,
        "objective.terms": reference_terms.yaml(terms),
        "teachers": teachers_setting({"big": (big, model)}, workers=2, metrics_listen='"127.0.0.1:0"'),
        **{f"metrics.{role}_listen": "127.0.0.1:0" for role in ("rollout", "teacher", "trainer")},
    }
    flags = write_config(tmp_path / "config.yaml", case.folder, **settings)
    run_dapd("run", tmp_path / "config.yaml", *flags)
    run = tmp_path / "runs" / "run"
    oracle = reference_terms.Objective(case.base, RANK, ALPHA, learning_rate=1e-3, schedule_steps=50, terms=terms)
    oracle.teachers = {"big": model}
    copy_fresh_adapter(case, oracle)
    for step, line in enumerate(read_jsonl(run / "metrics.jsonl"), 1):
        case.rows = read_jsonl(run / f"samples/step-{step:06d}.jsonl")
        expected = oracle.accumulate(case.views(max_reference_tokens=48), MICRO_BATCH)
        norm, _ = oracle.step()
        print(f"step {step}: loss {line['loss']:.6f} of {expected['loss']:.6f}, gradient {line['gradient_norm']:.6f} of {norm:.6f}")
        assert line["loss"] == pytest.approx(expected["loss"], rel=1e-5)
        assert line["gradient_norm"] == pytest.approx(norm, rel=1e-4)
    assert set(json.loads((run / "summary.json").read_text())["evaluation"]) == {"before", "after"}


def test_tokenizers_are_compared_id_by_id(tmp_path, qwen_folder):
    """Qwen2.5's vocabulary lacks the last tokens of Qwen3's; a fine-tuned model may have another merge."""
    small = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, head_dim=16, vocab_size=151936)
    transformers.Qwen3ForCausalLM(models.make_config("qwen3", True, **small)).save_pretrained(tmp_path / "student")

    def folder(name, change):
        target = tmp_path / name
        if name != "student":
            target.mkdir()
            for file in ("config.json", "model.safetensors"):
                (target / file).symlink_to(tmp_path / "student" / file)
        for file in ("tokenizer_config.json", "generation_config.json"):
            (target / file).write_text((qwen_folder / file).read_text())
        tokenizer = json.loads((qwen_folder / "tokenizer.json").read_text())
        change(tokenizer)
        (target / "tokenizer.json").write_text(json.dumps(tokenizer))
        return target

    def swap(tokenizer):
        merges = tokenizer["model"]["merges"]
        merges[1000], merges[1001] = merges[1001], merges[1000]

    student = folder("student", lambda tokenizer: None)
    cases = {
        "same": (lambda tokenizer: tokenizer.update(normalizer=None), None),
        "qwen25": (lambda tokenizer: tokenizer.update(added_tokens=tokenizer["added_tokens"][:-4]), "token 151665 is '<tool_response>' in"),
        "swapped": (swap, "merge 1001 is "),
    }
    data = problems(tmp_path, "train", 4)
    for name, (change, message) in cases.items():
        other = folder(name, change)
        flags = write_config(tmp_path / "config.yaml", student, **{
            "data.path": data, "objective.preset": "opsd", "objective.teacher_weights": "big", "run.output_dir": tmp_path / "runs",
            "teachers": f"[{{name: big, path: {other}}}]"})
        result = run_dapd("check", tmp_path / "config.yaml", *flags, check=False)
        if message is None:
            assert result.returncode == 0, result.stderr
            continue
        assert result.returncode == 4, result.stderr
        assert "teachers: 'big': " in result.stderr and message in result.stderr, result.stderr
        assert str(student / "tokenizer.json") in result.stderr and str(other / "tokenizer.json") in result.stderr

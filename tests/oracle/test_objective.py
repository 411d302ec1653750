"""Compares `dapd replay` and `dapd views` with the PyTorch transcription, in float32."""

import json
import random

import pytest
import torch
import transformers
from safetensors.torch import load_file

import models
import reference_objective
from conftest import ROOT, read_jsonl, run_dapd, write_jsonl
from make_qwen_tokenizer import package_folder

RANK, ALPHA = 8, 16
PROBLEMS = ["What is 2 + 3?", "Convert 5 km to m.", "Is 7 \u2264 8? \u00e9", "A\n\nlong problem " + "word " * 20]
REFERENCES = [
    "2 + 3 = \\boxed{5}.", "It is 5000.\n\n\\boxed{5000}", "<think>\nhm\n</think>\n\nYes.", "\n\nlead " * 12,
    # These have thoughts that Qwen3's template writes in another form, no thoughts, and halves of a block.
    "<think>hm</think>Yes.", "<think>\n\n</think>\n\nYes.", "so</think>Yes.", "<think>open", "\n x\n", "n",
    # This is the preamble itself.
    "see <|im_start|>assistant\n<think>\n\n</think>\n\nthere",
]


def random_samples(rng, count, eos, pad):
    rows = []
    for i in range(count):
        rollout = [rng.randrange(256) for _ in range(rng.randint(1, 24))]
        rollout += rng.choice([[], [eos], [eos, pad, pad], [pad]])
        rows.append({"id": f"s{i}", "problem": rng.choice(PROBLEMS), "reference": rng.choice(REFERENCES), "rollout_ids": rollout})
    return rows


def make_adapter(folder, base_folder, seed):
    """Writes a random adapter (B not zero) with peft."""
    from peft import LoraConfig, get_peft_model

    base = transformers.AutoModelForCausalLM.from_pretrained(base_folder, dtype=torch.float32)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    torch.manual_seed(seed)
    model = get_peft_model(base, LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=targets, task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn_like(parameter) * 0.02)
    model.save_pretrained(folder)
    return folder


def write_config(path, model, **settings):
    lines = {"model.path": str(model), "model.precision": "float32", "model.device": "cpu", "lora.rank": RANK,
             "lora.alpha": ALPHA, "run.seed": 3, **settings}
    path.write_text("{}\n")
    flags = []
    for key, value in lines.items():
        flags += ["--set", f"{key}={value}"]
    return flags


class Case:
    Views = reference_objective.Views

    def __init__(self, tmp_path, family, count, **model_options):
        self.folder = tmp_path / "model"
        models.make_model(self.folder, family, **model_options)
        self.base = transformers.AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.float32, attn_implementation="eager").eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder)
        generation = json.loads((self.folder / "generation_config.json").read_text())
        self.pad, self.eos = generation["pad_token_id"], generation["eos_token_id"][0]
        self.rows = random_samples(random.Random(5), count, self.eos, self.pad)
        self.rows = [r for r in self.rows if any(t != self.pad for t in r["rollout_ids"])]
        self.batch = write_jsonl(tmp_path / "batch.jsonl", self.rows)
        self.tmp = tmp_path

    def views(self, **options):
        builder = self.Views(self.tokenizer, **options)
        return [builder.build(r["problem"], r["reference"], r["rollout_ids"]) for r in self.rows]

    def replay(self, *flags, **settings):
        config = self.tmp / "config.yaml"
        sets = write_config(config, self.folder, **settings)
        run_dapd("replay", "--config", config, "--batch", self.batch, "--output", self.tmp / "out", *sets, *flags)
        return self.tmp / "out"


def compare_terms(ours, expected):
    worst = reference_objective.relative(ours["loss"], expected["loss"])
    for name, term in expected["terms"].items():
        worst = max(worst, reference_objective.relative(ours["terms"][name]["value"], term["value"]))
        assert ours["terms"][name]["tokens"] == term["tokens"], name
        assert ours["terms"][name]["clipped_fraction"] == pytest.approx(term["clipped_fraction"], abs=1e-12), name
    return worst


def compare_gradients(ours, expected):
    assert set(ours) == set(expected)
    worst = 0.0
    for name, gradient in expected.items():
        scale = gradient.norm().item()
        if scale > 0:
            worst = max(worst, (ours[name] - gradient).norm().item() / scale)
        else:
            assert ours[name].norm().item() == 0.0, name
    return worst


def test_the_official_step_of_the_benchmarks(tmp_path, monkeypatch):
    """The peer of row C9 builds the same views and has the same loss as the reference implementation."""
    monkeypatch.syspath_prepend(str(ROOT / "tests/benchmarks"))
    from official_step import OfficialTrainer

    case = Case(tmp_path, "qwen3", 4, tied=True)
    adapter = make_adapter(tmp_path / "live", case.folder, 1)
    settings = {"max_reference_tokens": 40, "max_new_tokens": 48, "learning_rate": 1e-3, "objective_temperature": 1.1, "clip": 0.05}
    trainer = OfficialTrainer(case.folder, adapter, settings)
    views = [trainer.views.build(r["problem"], r["reference"], r["rollout_ids"]) for r in case.rows]
    expected = reference_objective.Objective(case.base, RANK, ALPHA, adapter=adapter, snapshot=adapter).accumulate(
        case.views(max_reference_tokens=40), len(case.rows))
    error = reference_objective.relative(float(trainer.micro_loss(views).detach()), expected["loss"])
    print(f"the official step's loss: {error:.1e}")
    assert error < 1e-5


def test_row_c4_reads_the_views_and_finds_less_work_than_the_released_layout(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests/benchmarks"))
    import c4_plan

    for name, value in {"BATCH": 2, "ROLLOUT": 256, "REFERENCE": 256}.items():
        monkeypatch.setattr(c4_plan, name, value)
    path = c4_plan.views_of(tmp_path / "qwen")
    released = c4_plan.official_work(read_jsonl(path))
    for ours in c4_plan.our_work(path):
        print(ours, released)
        assert 0 < ours.body < 0.8 * released.body and 0 < ours.head_rows < 0.6 * released.head_rows


def test_the_official_step_on_a_gpu_multiplies_in_bfloat16_and_learns_in_float32(tmp_path, monkeypatch):
    """This is the peer of row G8, with the CPU in place of the GPU."""
    monkeypatch.syspath_prepend(str(ROOT / "tests/benchmarks"))
    from g8_step import SETTINGS, GpuTrainer

    case = Case(tmp_path, "qwen3", 4, tied=True)
    adapter = make_adapter(tmp_path / "live", case.folder, 1)
    settings = {**SETTINGS, "max_reference_tokens": 40, "max_new_tokens": 48}
    trainer = GpuTrainer(case.folder, adapter, settings, device="cpu")
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.bfloat16}
    # A default device would add some microseconds to every operation that Python calls, and sampling two answers takes
    # many small operations.
    assert torch.utils._device.CURRENT_DEVICE is None
    views = [trainer.views.build(r["problem"], r["reference"], r["rollout_ids"]) for r in case.rows]
    expected = reference_objective.Objective(case.base, RANK, ALPHA, adapter=adapter, snapshot=adapter).accumulate(
        case.views(max_reference_tokens=40), len(case.rows))
    loss = trainer.micro_loss(views)
    error = reference_objective.relative(float(loss.detach()), expected["loss"])
    print(f"the official step's loss in bfloat16: {error:.1e}")
    assert error < 5e-2
    loss.backward()
    before = [parameter.clone() for parameter in trainer.parameters]
    trainer.update()
    # A step at this rate is far below bfloat16's last place.
    assert all(parameter.dtype == torch.float32 and not torch.equal(parameter, old) for parameter, old in zip(trainer.parameters, before))
    live = [parameter for parameter in trainer.model.parameters() if parameter.requires_grad]
    assert len(live) == len(before) and all(torch.equal(found, kept.bfloat16()) for found, kept in zip(live, trainer.parameters))
    assert all(parameter.grad is None for parameter in live)


@pytest.mark.parametrize(
    "family, self_rollout, micro_batch, clip",
    [
        ("qwen3", "append", 2, 0.05),
        ("qwen3", "template", 3, 0.05),
        ("qwen2", "append", 1, 0.05),
        ("llama", "append", 2, float("inf")),
        ("llama", "template", 2, 0.01),
        ("llama3", "append", 2, 0.05),
        ("gemma2", "append", 2, 0.05),
        ("qwen3_yarn", "append", 2, 0.05),
        ("llama_yarn", "template", 2, 0.05),
    ],
)
@pytest.mark.parametrize("adapters", [False, True])
def test_terms_and_gradients(family, self_rollout, micro_batch, clip, adapters, tmp_path):
    case = Case(tmp_path, family, 5, tied=family != "llama")
    flags, given = [], {}
    if adapters:
        given = {"adapter": make_adapter(tmp_path / "live", case.folder, 1), "snapshot": make_adapter(tmp_path / "snapshot", case.folder, 2)}
        flags = ["--adapter", given["adapter"], "--snapshot", given["snapshot"]]
    settings = {"objective.self_rollout": self_rollout, "trainer.micro_batch_size": micro_batch, "objective.max_reference_tokens": 40,
                "objective.component_clip": ".inf" if clip == float("inf") else clip}
    out = case.replay(*flags, **settings)
    oracle = reference_objective.Objective(case.base, RANK, ALPHA, clip=clip, **given)
    ours = load_file(out / "gradients.safetensors")
    if not adapters:
        # A fresh adapter is random, so the oracle takes ours, which `--apply` at a rate near 0 writes.
        copy_fresh_adapter(case, oracle)
    expected = oracle.accumulate(case.views(self_rollout=self_rollout, max_reference_tokens=40), micro_batch)
    value_error = compare_terms(json.loads((out / "objective.json").read_text()), expected)
    gradient_error = compare_gradients(ours, oracle.gradients())
    print(f"{family} {self_rollout} adapters={adapters}: terms {value_error:.1e}, gradients {gradient_error:.1e}")
    assert value_error < 1e-5
    assert gradient_error < 1e-4


def copy_fresh_adapter(case, oracle):
    """Gives the oracle the adapter that run.seed determines."""
    folder = case.tmp / "fresh"
    run_dapd("adapter", "init", "--model", case.folder, "--output", folder, "--rank", RANK, "--alpha", ALPHA, "--seed", 3)
    for name, tensor in load_file(folder / "adapter_model.safetensors").items():
        oracle.parameters[name].data.copy_(tensor)


def compare_steps(case, oracle, steps, *flags, **settings):
    """Compares the steps of `dapd replay --apply`, in batches of four samples, and the final adapter."""
    settings = {"trainer.batch_size": 4, "trainer.learning_rate": 1e-3, "trainer.schedule_steps": 50, "trainer.steps": steps,
                "trainer.max_grad_norm": 0.1, **settings}
    case.rows = case.rows[: 4 * steps]
    write_jsonl(case.batch, case.rows)
    out = case.replay("--apply", *flags, **settings)
    copy_fresh_adapter(case, oracle)
    start = oracle.copy_parameters()
    views, metrics = case.views(), read_jsonl(out / "metrics.jsonl")
    assert len(metrics) == steps
    for step, line in enumerate(metrics):
        expected = oracle.accumulate(views[4 * step : 4 * step + 4], 2)
        norm, rate = oracle.step()
        assert line["step"] == step + 1 and line["learning_rate"] == pytest.approx(rate, rel=1e-12)
        assert line["gradient_norm"] == pytest.approx(norm, rel=1e-3)
        assert line["loss"] == pytest.approx(expected["loss"], rel=1e-3)
    ours = load_file(out / "adapter" / "adapter_model.safetensors")
    difference = sum((ours[n] - p.detach()).square().sum() for n, p in oracle.parameters.items()).sqrt()
    update = sum((start[n] - p.detach()).square().sum() for n, p in oracle.parameters.items()).sqrt()
    print(f"adapter after {steps} steps differs by {difference / update:.1e} of the update's norm {update:.3f}")
    assert difference / update < 1e-3


def terms_yaml(terms):
    return "[" + ", ".join(
        f"{{name: {n}, student: {s}, teacher: {t}, teacher_weights: {w}, weight: {x}, clip: {'.inf' if c == float('inf') else c}}}"
        for n, s, t, w, x, c in terms
    ) + "]"


@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_ten_steps_across_a_snapshot_refresh(family, tmp_path):
    case = Case(tmp_path, family, 44)
    oracle = reference_objective.Objective(case.base, RANK, ALPHA, learning_rate=1e-3, schedule_steps=50, snapshot_interval=4)
    compare_steps(case, oracle, 10, **{"teacher.snapshot_interval": 4})


def test_five_steps_with_a_moving_average_and_the_live_adapter(tmp_path):
    case = Case(tmp_path, "qwen3", 24)
    terms = [("mean", "none_rollout", "cross_rollout", "ema", 1.0, 0.05), ("self", "none_reference", "cross_reference", "live", 0.7, 0.05),
             ("old", "self_rollout", "cross_rollout", "snapshot", 0.3, 0.05)]
    oracle = reference_objective.Objective(case.base, RANK, ALPHA, terms=terms, learning_rate=1e-3, schedule_steps=50, snapshot_interval=2, ema_rate=0.3)
    compare_steps(case, oracle, 5, **{"objective.terms": terms_yaml(terms), "teacher.snapshot_interval": 2, "teacher.ema_rate": 0.3})


def test_custom_terms(tmp_path):
    case = Case(tmp_path, "qwen3", 4)
    terms = [("opsd", "none_rollout", "cross_rollout", "base", 1.5, 0.05), ("plain", "self_reference", "cross_reference", "base", 0.5, float("inf"))]
    out = case.replay(**{"objective.terms": terms_yaml(terms)})
    oracle = reference_objective.Objective(case.base, RANK, ALPHA, terms=terms)
    copy_fresh_adapter(case, oracle)
    expected = oracle.accumulate(case.views(), 2)
    error = compare_terms(json.loads((out / "objective.json").read_text()), expected)
    gradient_error = compare_gradients(load_file(out / "gradients.safetensors"), oracle.gradients())
    print(f"custom terms: terms {error:.1e}, gradients {gradient_error:.1e}")
    assert error < 1e-5 and gradient_error < 1e-4


@pytest.mark.parametrize("self_rollout", ["append", "template"])
@pytest.mark.parametrize("name", ["qwen3", "smollm2", "qwen2_5", "llama3", "qwen3_instruct_2507"])
@pytest.mark.parametrize("settings", [{}, {"data.max_prompt_tokens": 160, "rollout.max_new_tokens": 110}])
def test_views_with_real_tokenizers(name, self_rollout, settings, request, tmp_path):
    source = request.getfixturevalue("smollm2_folder" if name == "smollm2" else "qwen_folder")
    template = name if name in ("qwen2_5", "llama3", "qwen3_instruct_2507") else None
    compare_views(source, tmp_path, self_rollout, settings, template=template)


def test_without_a_pad_token_the_end_token_is_pad(qwen_folder, tmp_path):
    rows = compare_views(qwen_folder, tmp_path, "append", {}, pad_token=None)
    assert any(row["rollout_ids"][-1] == 151645 for row in rows)


def compare_views(source, tmp_path, self_rollout, settings, template=None, **tokenizer_config):
    """Compares every token of every view; returns the samples that were compared."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes())
    config = {"bos_token": "<|endoftext|>", **json.loads((source / "tokenizer_config.json").read_text()), **tokenizer_config}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if template:
        text = (package_folder("trl") / "chat_templates" / f"{template}.jinja").read_text()
        (folder / "chat_template.jinja").write_text(text)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    # A pad id of the model that is not the tokenizer's is ignored.
    eos, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    models.make_config("qwen3", True, vocab_size=151936, eos_token_id=eos, pad_token_id=5).save_pretrained(folder)
    rng = random.Random(11)
    rows = []
    for row in random_samples(rng, 120, eos, eos if pad is None else pad):
        text = rng.choice(["So 2 + 2 = \\boxed{4}.", "<think>\n\n</think>\n\nIt is 7", "\u4e2d\u6587 answer", "a  b\n\n\nc ", ""])
        row["rollout_ids"] = tokenizer(text, add_special_tokens=False)["input_ids"] + row["rollout_ids"]
        rows.append(row)
    write_jsonl(tmp_path / "in", rows)
    (tmp_path / "config.yaml").write_text("{}\n")
    sets = ["--set", f"model.path={folder}", "--set", f"objective.self_rollout={self_rollout}"]
    for key, value in settings.items():
        sets += ["--set", f"{key}={value}"]
    run_dapd("views", "--config", tmp_path / "config.yaml", *sets, "--input", tmp_path / "in", "--output", tmp_path / "out")
    limits = {"max_prompt": settings["data.max_prompt_tokens"], "max_new_tokens": settings["rollout.max_new_tokens"]} if settings else {}
    builder = reference_objective.Views(tokenizer, self_rollout=self_rollout, **limits)
    wrong = 0
    for row, ours in zip(rows, read_jsonl(tmp_path / "out"), strict=True):
        expected = builder.build(row["problem"], row["reference"], row["rollout_ids"])
        for view, (ids, start, count) in expected.items():
            got = ours["views"][view]
            if (got["input_ids"], got["scored_from"], got["scored_count"]) != (ids, start, count):
                wrong += 1
                print(view, tokenizer.decode(got["input_ids"]), tokenizer.decode(ids), sep="\n---\n")
    print(f"{source.name} {template} {self_rollout} {settings}: {wrong} of {6 * len(rows)} views differ")
    assert wrong == 0
    return rows


@pytest.mark.parametrize("empty", ["every other", "a whole micro-batch"])
def test_an_answer_of_padding_alone_leaves_its_references_terms(empty, tmp_path):
    case = Case(tmp_path, "qwen3", 6)
    case.rows = case.rows[:4]
    for row in case.rows[::2] if empty == "every other" else case.rows[:2]:
        row["rollout_ids"] = [case.pad, case.pad]
    write_jsonl(case.batch, case.rows)
    out = case.replay()
    oracle = reference_objective.Objective(case.base, RANK, ALPHA)
    copy_fresh_adapter(case, oracle)
    expected = oracle.accumulate(case.views(), 2)
    value_error = compare_terms(json.loads((out / "objective.json").read_text()), expected)
    gradient_error = compare_gradients(load_file(out / "gradients.safetensors"), oracle.gradients())
    print(f"{empty} of padding: terms {value_error:.1e}, gradients {gradient_error:.1e}")
    assert value_error < 1e-5
    assert gradient_error < 1e-4


def test_an_empty_rollout_is_named(tmp_path):
    case = Case(tmp_path, "qwen3", 2)
    write_jsonl(case.batch, [{**case.rows[0], "id": "hollow", "rollout_ids": []}])
    sets = write_config(tmp_path / "config.yaml", case.folder)
    result = run_dapd("replay", "--config", tmp_path / "config.yaml", "--batch", case.batch, "--output", tmp_path / "out", *sets, check=False)
    assert result.returncode == 4 and "'hollow'" in result.stderr and "empty" in result.stderr, result.stderr



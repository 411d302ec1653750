"""Adapter folders: peft reads ours, we read peft's, and whatever does not fit is refused by name."""

import json
import shutil

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

import models
from conftest import run_dapd
from test_model import MAX_LOGIT_ERROR, hf_logits, score
from test_objective import ALPHA, RANK, Case, make_adapter

TEXT = list(b"peft and dapd, side by side")


@pytest.mark.parametrize("family, targets", [("qwen3", "all"), ("qwen2", "v_proj, q_proj"), ("llama", "all")])
def test_peft_reads_what_we_trained(family, targets, tmp_path):
    case = Case(tmp_path, family, 8)
    settings = {} if targets == "all" else {"lora.targets": f"[{targets}]"}
    out = case.replay("--apply", **{"trainer.batch_size": 2, "trainer.learning_rate": 0.01, **settings})
    plain = hf_logits(case.base, TEXT)
    theirs = hf_logits(PeftModel.from_pretrained(case.base, out / "adapter").eval(), TEXT)
    rows = [{"id": "x", "input_ids": TEXT}]
    ours = score(case.folder, tmp_path, rows, "--logits", "--adapter", out / "adapter")["x.logits"]
    difference, moved = (ours - theirs).abs().max().item(), (plain - theirs).abs().max().item()
    print(f"{family}: training moved logits by {moved:.1e}; ours differ from peft's by {difference:.1e}")
    assert moved > 0.01 and difference <= MAX_LOGIT_ERROR


def test_a_round_trip_changes_no_bit(tmp_path):
    """A step at a rate too small for float32 reads and writes the adapter."""
    case = Case(tmp_path, "qwen3", 2)
    adapter = make_adapter(tmp_path / "adapter", case.folder, seed=5)
    out = case.replay("--apply", "--adapter", adapter, **{"trainer.batch_size": 2, "trainer.learning_rate": 1e-30})
    before, after = (load_file(folder / "adapter_model.safetensors") for folder in (adapter, out / "adapter"))
    assert set(before) == set(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    config = json.loads((out / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["peft_type"]) == (RANK, ALPHA, "LORA")


@pytest.fixture(scope="module")
def peft_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapter")
    models.make_model(folder / "model", "qwen3")
    make_adapter(folder / "adapter", folder / "model", seed=6)
    return folder


def verify(folder, adapter, *flags):
    return run_dapd("adapter", "verify", "--model", folder / "model", "--adapter", adapter, *flags, check=False)


def test_verify_counts_modules_and_norms(peft_folder):
    report = json.loads(verify(peft_folder, peft_folder / "adapter", "--json").stdout)
    tensors = load_file(peft_folder / "adapter" / "adapter_model.safetensors")
    assert report["modules_applied"] == report["modules_expected"] == 3 * 7
    for key, part in (("norm_a", "lora_A"), ("norm_b", "lora_B")):
        expected = sum(t.square().sum() for name, t in tensors.items() if part in name).sqrt().item()
        assert report[key] == pytest.approx(expected, rel=1e-5)
    products = [tensors[n.replace("lora_A", "lora_B")] @ t for n, t in tensors.items() if "lora_A" in n]
    expected = ALPHA / RANK * sum(p.square().sum() for p in products).sqrt().item()
    assert report["norm_delta"] == pytest.approx(expected, rel=1e-5)
    assert report["changes_nothing"] is False


def test_verify_says_when_nothing_changes(peft_folder, tmp_path):
    run_dapd("adapter", "init", "--model", peft_folder / "model", "--output", tmp_path / "fresh", "--rank", RANK)
    result = verify(peft_folder, tmp_path / "fresh")
    assert result.returncode == 0 and "changes nothing" in result.stdout


def test_no_target_of_a_fresh_adapter_occurs_twice(peft_folder, tmp_path):
    result = run_dapd("adapter", "init", "--model", peft_folder / "model", "--output", tmp_path / "fresh", "--targets", "q_proj", "k_proj", "q_proj",
                      check=False)
    assert result.returncode == 2 and "--targets: 'q_proj' occurs twice" in result.stderr
    assert not (tmp_path / "fresh").exists()


def test_a_fresh_adapter_is_not_written_over_another_one(peft_folder, tmp_path):
    folder = tmp_path / "fresh"
    folder.mkdir()
    init = ("adapter", "init", "--model", peft_folder / "model", "--output", folder, "--rank", RANK)
    run_dapd(*init)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    result = run_dapd(*init, "--seed", 7, check=False)
    assert result.returncode == 2 and f"{folder} already exists" in result.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


NAME = "base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight"


def rename(tensors, config):
    for name in list(tensors):
        tensors[name.removeprefix("base_model.model.")] = tensors.pop(name)


def with_value(value):
    def change(tensors, config):
        tensors[NAME][0, 0] = value

    return change


BROKEN = {
    "wrong prefix": (rename, "model.layers."),
    "missing tensor": (lambda tensors, config: tensors.pop(NAME), NAME),
    "extra tensor": (lambda tensors, config: tensors.update({NAME.replace("v_proj", "w_proj"): tensors[NAME].clone()}), "w_proj"),
    "a layer too many": (lambda tensors, config: tensors.update({NAME.replace("layers.1", "layers.9"): tensors[NAME].clone()}), "layers.9"),
    "wrong shape": (lambda tensors, config: tensors.update({NAME: torch.zeros(7, RANK)}), NAME),
    "wrong rank": (lambda tensors, config: config.update(r=RANK + 1), f"{RANK + 1}"),
    "not a number": (with_value(float("nan")), NAME),
    "infinity": (with_value(float("inf")), NAME),
    "unsupported kind": (lambda tensors, config: config.update(use_dora=True), "use_dora"),
    "out of the base's weights": (lambda tensors, config: config.update(init_lora_weights="pissa_niter_4"), "init_lora_weights"),
    "active behind some tokens": (lambda tensors, config: config.update(alora_invocation_tokens=[1, 2]), "alora_invocation_tokens"),
    "trained bias": (lambda tensors, config: config.update(bias="all"), "bias"),
    "another method": (lambda tensors, config: config.update(peft_type="IA3"), "peft_type"),
    "truncated file": (None, "adapter_model.safetensors"),
}


def test_a_pickled_adapter_is_refused_with_the_way_out(peft_folder, tmp_path):
    shutil.copytree(peft_folder / "adapter", tmp_path / "adapter")
    weights = tmp_path / "adapter" / "adapter_model.safetensors"
    torch.save(load_file(weights), weights.with_suffix(".bin"))
    weights.unlink()
    result = verify(peft_folder, tmp_path / "adapter")
    assert result.returncode == 4 and "adapter_model.bin, which is not read; PEFT's save_pretrained" in result.stderr, result


@pytest.mark.parametrize("case", BROKEN)
def test_what_does_not_fit_is_refused_by_name(case, peft_folder, tmp_path):
    change, expected = BROKEN[case]
    shutil.copytree(peft_folder / "adapter", tmp_path / "adapter")
    weights, settings = (tmp_path / "adapter" / name for name in ("adapter_model.safetensors", "adapter_config.json"))
    if change is None:
        weights.write_bytes(weights.read_bytes()[:-5])
    else:
        tensors, config = load_file(weights), json.loads(settings.read_text())
        change(tensors, config)
        save_file(tensors, weights, metadata={"format": "pt"})
        settings.write_text(json.dumps(config))
    result = verify(peft_folder, tmp_path / "adapter")
    print(result.stderr)
    assert result.returncode == 4, result
    assert expected in result.stderr

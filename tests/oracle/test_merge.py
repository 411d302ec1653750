"""Compares `dapd adapter merge` with transformers and peft: the folder it writes is the model with the adapter."""

import hashlib
import json
import random

import pytest
import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file

import models
from conftest import run_dapd
from test_model import MAX_LOGIT_ERROR, compare, hf_logits, random_rows, score
from test_objective import Case, make_adapter

VARIANTS = {
    "qwen3 in shards": dict(family="qwen3", hidden_size=256, intermediate_size=512),
    "qwen2 untied, of a sharded base": dict(family="qwen2", tied=False, sharded=True),
    "llama": dict(family="llama"),
}


def merge(tmp_path, *flags):
    return run_dapd("adapter", "merge", "--model", tmp_path / "model", "--adapter", tmp_path / "adapter", "--output", tmp_path / "merged", *flags)


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_those_of_model_and_adapter(variant, tmp_path):
    models.make_model(tmp_path / "model", **VARIANTS[variant])
    make_adapter(tmp_path / "adapter", tmp_path / "model", seed=3)
    printed = merge(tmp_path, "--max-shard-mib", 1).stdout
    assert "21 modules merged" in printed
    if "shards" in variant:
        index = json.loads((tmp_path / "merged/model.safetensors.index.json").read_text())
        files = set(index["weight_map"].values())
        assert len(files) > 2 and {path.name for path in (tmp_path / "merged").glob("*.safetensors")} == files

    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    rows = random_rows(random.Random(3), models.VOCABULARY, [2, 17, 120])
    plain = [hf_logits(base, row["input_ids"]) for row in rows]
    adapted = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    merged = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32)
    error = moved = 0.0
    for row, before in zip(rows, plain):
        expected = hf_logits(adapted, row["input_ids"])
        error = max(error, (hf_logits(merged, row["input_ids"]) - expected).abs().max().item())
        moved = max(moved, (before - expected).abs().max().item())
    ours, _ = compare(score(tmp_path / "merged", tmp_path, rows, "--logits"), adapted, rows)
    print(f"{variant}: merged in transformers {error:.1e}, in dapd {ours:.1e}; the adapter moves logits by {moved:.2f}")
    assert moved > 0.01 and error <= MAX_LOGIT_ERROR and ours <= MAX_LOGIT_ERROR


def test_weights_are_those_that_peft_merges(tmp_path):
    """This holds in bfloat16 as well, where logits show little: the same sums are rounded in the same way, up to the
    last bit."""
    models.make_model(tmp_path / "model", "qwen3", dtype=torch.bfloat16)
    make_adapter(tmp_path / "adapter", tmp_path / "model", seed=3)
    merge(tmp_path)
    ours = load_file(tmp_path / "merged/model.safetensors")
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    theirs = PeftModel.from_pretrained(base, tmp_path / "adapter").merge_and_unload().state_dict()
    worst = 0.0
    for name, tensor in ours.items():
        assert tensor.dtype == torch.bfloat16
        expected = theirs[name]
        worst = max(worst, ((tensor.float() - expected).abs() / expected.abs().clamp_min(1e-6)).max().item())
    print(f"largest relative error {worst:.1e}, half a unit of bfloat16 is {2.0**-9:.1e}")
    assert worst <= 2.0**-8


def test_tokenizer_and_configuration_come_along(tmp_path):
    models.make_model(tmp_path / "model", "qwen3")
    make_adapter(tmp_path / "adapter", tmp_path / "model", seed=3)
    merge(tmp_path)
    for path in (tmp_path / "model").glob("*.json"):
        assert (tmp_path / "merged" / path.name).read_bytes() == path.read_bytes()
    ours, theirs = (transformers.AutoTokenizer.from_pretrained(tmp_path / name) for name in ("merged", "model"))
    messages = [{"role": "user", "content": "1 + 1?"}]
    assert ours.apply_chat_template(messages, tokenize=False) == theirs.apply_chat_template(messages, tokenize=False)


def test_an_output_that_is_there_stays(tmp_path):
    models.make_model(tmp_path / "model", "qwen3")
    make_adapter(tmp_path / "adapter", tmp_path / "model", seed=3)
    (tmp_path / "merged").mkdir()
    (tmp_path / "merged/mine.txt").write_text("mine")
    result = run_dapd("adapter", "merge", "--model", tmp_path / "model", "--adapter", tmp_path / "adapter", "--output", tmp_path / "merged", check=False)
    assert result.returncode == 2 and "already exists" in result.stderr
    assert (tmp_path / "merged/mine.txt").read_text() == "mine"


def test_an_adapter_of_another_base_is_named(tmp_path):
    """The adapter was trained on only one of two models of one shape; merged into the other
    model, it would give wrong figures."""
    case = Case(tmp_path, "qwen3", 2)
    adapter = case.replay("--apply", **{"trainer.batch_size": 2}) / "adapter"
    models.make_model(tmp_path / "other", "qwen3", seed=99)
    files = sorted(path for path in case.folder.iterdir() if path.suffix in (".safetensors", ".json", ".jinja"))
    listed = "".join(f"{path.name}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n" for path in files)
    digest = hashlib.sha256(listed.encode()).hexdigest()
    card = f"<!-- dapd: training -->\n## Training\n\n* Steps: 2\n* Base, SHA-256: {digest}\n* Accuracy: 76 %\n<!-- dapd: end of training -->\n"

    def verify(model, *flags):
        return run_dapd("adapter", "verify", "--model", model, "--adapter", adapter, *flags).stdout

    assert "base: unknown" in verify(case.folder)
    (adapter / "README.md").write_text(card)
    assert "base: the adapter was trained on it" in verify(case.folder)
    assert "base: the adapter was NOT trained on it" in verify(tmp_path / "other") and digest in verify(tmp_path / "other")
    assert [json.loads(verify(model, "--json"))["base"] for model in (case.folder, tmp_path / "other")] == ["same", "another"]
    for model, keeps in ((case.folder, True), (tmp_path / "other", False)):
        output = tmp_path / f"merged-{keeps}"
        merged = run_dapd("adapter", "merge", "--model", model, "--adapter", adapter, "--output", output)
        assert ("Accuracy" in (output / "README.md").read_text()) == keeps
        assert ("NOT trained on it" in merged.stderr) != keeps

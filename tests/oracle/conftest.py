"""Fixtures of the oracle tests: our programs, and model folders to run them on."""

import fcntl
import json
import os
import pathlib
import subprocess

import pytest

# This comes before torch is loaded: tests and services share the cores, and waiting threads would spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import make_qwen_tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("DAPD_BIN", ROOT / "build" / "bin"))
DEMO_MODEL = ROOT / ".deps" / "models" / "SmolLM2-135M-Instruct"


def run_dapd(*arguments, check=True, **kwargs):
    """Runs the dapd command; its stderr is in the failure message."""
    result = subprocess.run([str(BIN / "dapd"), *map(str, arguments)], capture_output=True, text=True, **kwargs)
    if check:
        assert result.returncode == 0, f"dapd {arguments}: code {result.returncode}\n{result.stderr}"
    return result


def write_jsonl(path, rows):
    pathlib.Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_jsonl(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().split("\n") if line]


@pytest.fixture(scope="session")
def qwen_folder(tmp_path_factory):
    """Provides the real Qwen vocabulary with Qwen3's chat template."""
    folder = tmp_path_factory.mktemp("qwen")
    make_qwen_tokenizer.write(folder)
    return folder


@pytest.fixture(scope="session")
def llama3_folder(qwen_folder, tmp_path_factory):
    """Provides a tokenizer with the rules of Llama 3's and the merges of Qwen's vocabulary, which contain most of Llama 3's:
    digits in threes, words of the vocabulary taken whole, no normaliser, and its own special tokens."""
    tokenizer = json.loads((qwen_folder / "tokenizer.json").read_text())
    split = tokenizer["pre_tokenizer"]["pretokenizers"][0]
    assert "|\\p{N}|" in split["pattern"]["Regex"]
    split["pattern"]["Regex"] = split["pattern"]["Regex"].replace("|\\p{N}|", "|\\p{N}{1,3}|")
    tokenizer["normalizer"] = None
    tokenizer["model"]["ignore_merges"] = True
    vocabulary = tokenizer["model"]["vocab"]
    # No merges produce this word: only ignore_merges makes it one token.
    new = ["qzxjvk"]
    # Digits merge within groups of three.
    for left, right in ["12", "34", "45", "56", ("12", "3"), ("45", "6")]:
        tokenizer["model"]["merges"].append([left, right])
        new.append(left + right)
    # As in every real file, the ids of added tokens follow those of the vocabulary; the library renumbers others.
    vocabulary.update({text: len(vocabulary) + i for i, text in enumerate(new)})
    for token in tokenizer["added_tokens"]:
        token["id"] += len(new)
    size = max(token["id"] for token in tokenizer["added_tokens"]) + 1
    for i, text in enumerate(["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>"]):
        flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
        tokenizer["added_tokens"].append(dict(id=size + i, content=text, **flags))
    folder = tmp_path_factory.mktemp("llama3")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


@pytest.fixture(scope="session")
def tekken_folder(qwen_folder, tmp_path_factory):
    """Provides a tokenizer with the rules of Mistral's tekken over Qwen's vocabulary: words cut where capitals begin, single
    digits, no normaliser."""
    tokenizer = json.loads((qwen_folder / "tokenizer.json").read_text())
    capital, small = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    prefix = r"[^\r\n\p{L}\p{N}]?"
    words = f"{prefix}{capital}*{small}+|{prefix}{capital}+{small}*"
    tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = (
        words + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tokenizer["normalizer"] = None
    folder = tmp_path_factory.mktemp("tekken")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


@pytest.fixture(scope="session")
def smollm2_folder():
    """Provides SmolLM2-135M-Instruct as deploy/fetch_demo_model.py writes it."""
    # Several processes share the tests; one of them makes it.
    with open(ROOT / ".deps" / "fetch_demo_model.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (DEMO_MODEL / "model.safetensors").exists():
            subprocess.run([str(ROOT / ".deps/venv/bin/python"), str(ROOT / "deploy/fetch_demo_model.py")], check=True)
    return DEMO_MODEL

"""The laboratory model (deploy/models/laboratory) and the script that trains it, deploy/pretrain_laboratory_model.py.

The folder is compared with its digests, transformers and tokenizers; the script's prompts with `dapd views`, so that
training shows the model what it has seen.
"""

import hashlib
import importlib
import json
import re
import subprocess
import sys

import pytest
import torch
import transformers
import yaml
from safetensors.torch import load_file
from tokenizers import Tokenizer

from conftest import ROOT, read_jsonl, run_dapd, write_jsonl

SCRIPT = ROOT / "deploy" / "pretrain_laboratory_model.py"
CONFIG = ROOT / "configs" / "laboratory.yaml"
TAUGHT_CONFIG = ROOT / "configs" / "laboratory-opd.yaml"
FOLDER = ROOT / "deploy" / "models" / "laboratory"
MAX_BYTES = 4_000_000


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(SCRIPT.parent))
    yield importlib.import_module(SCRIPT.stem)
    sys.path.remove(str(SCRIPT.parent))


@pytest.fixture(scope="module")
def documents(script):
    return script.laboratory_documents


@pytest.fixture(scope="module")
def laboratory():
    if not FOLDER.exists():
        pytest.skip(f"there is no {FOLDER.relative_to(ROOT)}, which {SCRIPT.name} writes")
    return FOLDER


@pytest.fixture(scope="module")
def two_batches(tmp_path_factory):
    """Provides the script's output after two batches: the same tokenizer, and a model that knows nothing."""
    folder = tmp_path_factory.mktemp("laboratory") / "model"
    subprocess.run([sys.executable, SCRIPT, "--batches", "2", "--output", folder], check=True, capture_output=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def large(laboratory, tmp_path_factory):
    """Provides the teacher that the script makes of the laboratory model, after two batches."""
    folder = tmp_path_factory.mktemp("laboratory") / "large"
    subprocess.run([sys.executable, SCRIPT, "--size", "large", "--batches", "2", "--output", folder], check=True, capture_output=True, timeout=300)
    return folder


def problems(folder, split="train", count=40, seed=1):
    path = folder / f"{split}-{seed}.jsonl"
    run_dapd("problems", "--task", "stepwise_sum", "--split", split, "--count", count, "--seed", seed, "--output", path)
    return read_jsonl(path)


def check_digests(folder):
    listed = dict(line.split("  ")[::-1] for line in (folder / "SHA256SUMS").read_text().splitlines())
    assert "model.safetensors" in listed
    assert set(listed) == {path.name for path in folder.iterdir()} - {"SHA256SUMS"}
    for name, digest in listed.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name


def test_the_folder_is_the_one_that_was_trained(laboratory):
    check_digests(laboratory)
    size = sum(path.stat().st_size for path in laboratory.iterdir())
    print(f"{size} bytes")
    assert size <= MAX_BYTES


def test_the_script_writes_the_same_tokenizer_and_a_model_that_loads(two_batches):
    check_digests(two_batches)
    model = transformers.AutoModelForCausalLM.from_pretrained(two_batches)
    assert model.dtype == torch.bfloat16 and sum(p.numel() for p in model.parameters()) > 1_000_000
    if FOLDER.exists():
        assert (two_batches / "tokenizer.json").read_bytes() == (FOLDER / "tokenizer.json").read_bytes()


def test_a_folder_that_is_there_stays(two_batches):
    before = {path.name: path.stat().st_mtime_ns for path in two_batches.iterdir()}
    result = subprocess.run([sys.executable, SCRIPT, "--batches", "2", "--output", two_batches], capture_output=True, text=True)
    assert result.returncode == 2 and "already exists" in result.stderr
    assert {path.name: path.stat().st_mtime_ns for path in two_batches.iterdir()} == before


def test_tokenizers_agree(two_batches, tmp_path):
    texts = [text for row in problems(tmp_path, count=500) for text in (row["problem"], row["solution"])]
    write_jsonl(tmp_path / "in", [{"text": text} for text in texts])
    run_dapd("tokenize", "--model", two_batches, "--input", tmp_path / "in", "--output", tmp_path / "out")
    expected = [encoding.ids for encoding in Tokenizer.from_file(str(two_batches / "tokenizer.json")).encode_batch(texts, add_special_tokens=False)]
    wrong = [text for text, row, ids in zip(texts, read_jsonl(tmp_path / "out"), expected, strict=True) if row["ids"] != ids]
    print(f"{len(wrong)} of {len(texts)} encodings differ")
    assert not wrong


def test_logits_agree(laboratory, tmp_path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(laboratory)
    texts = [f"{row['problem']} {row['solution']}" for row in problems(tmp_path, "held_out", 8)]
    rows = [{"id": str(i), "input_ids": tokenizer(text, add_special_tokens=False).input_ids} for i, text in enumerate(texts)]
    write_jsonl(tmp_path / "in", rows)
    run_dapd("score", "--model", laboratory, "--input", tmp_path / "in", "--output", tmp_path / "scores", "--logits", "--precision", "float32")
    scores = load_file(tmp_path / "scores")
    model = transformers.AutoModelForCausalLM.from_pretrained(laboratory, dtype=torch.float32).eval()
    worst = 0.0
    with torch.no_grad():
        for row in rows:
            expected = model(torch.tensor([row["input_ids"]])).logits[0]
            worst = max(worst, (scores[f"{row['id']}.logits"] - expected).abs().max().item())
    print(f"logits differ by at most {worst:.1e}")
    assert worst < 2e-4


class Draws:
    """A generator that always draws the same number."""

    def __init__(self, value):
        self.value = value

    def random(self):
        return self.value


def test_views_are_texts_of_the_form_that_it_was_trained_on(documents, two_batches, tmp_path):
    row = problems(tmp_path, count=1)[0]
    numbers = [int(digits) for digits in re.findall(r"\d+", row["problem"])]
    assert documents.problem(numbers) == row["problem"]
    assert documents.worked(numbers, 0, Draws(0.5))[0] == row["solution"]
    tokenizer = Tokenizer.from_file(str(two_batches / "tokenizer.json"))
    answer = documents.bare(sum(numbers) + 1)
    rollout = tokenizer.encode(answer + "<|im_end|>", add_special_tokens=False).ids
    write_jsonl(tmp_path / "in", [{"id": "x", "problem": row["problem"], "reference": row["solution"], "rollout_ids": rollout}])
    run_dapd("views", "--config", CONFIG, "--set", f"model.path={two_batches}", "--input", tmp_path / "in", "--output", tmp_path / "out")
    views = read_jsonl(tmp_path / "out")[0]["views"]

    def text(name, scored):
        view = views[name]
        end = view["scored_from"] + view["scored_count"]
        ids = view["input_ids"][view["scored_from"] : end] if scored else view["input_ids"][: view["scored_from"]]
        return tokenizer.decode(ids, skip_special_tokens=False)

    thoughts_closed, thoughts_open = Draws(0.0), Draws(0.9)
    prompts = {
        "none_rollout": documents.prompt(numbers),
        "none_reference": documents.prompt(numbers),
        "self_rollout": f"{documents.prompt(numbers)}{answer}<|im_end|>",
        "self_reference": documents.privileged_prompt(numbers, row["solution"], thoughts_closed),
        "cross_rollout": documents.privileged_prompt(numbers, row["solution"], thoughts_open),
        "cross_reference": documents.privileged_prompt(numbers, answer, thoughts_open),
    }
    for name, prompt in prompts.items():
        assert text(name, scored=False) == prompt, name
        assert text(name, scored=True) == (f"{row['solution']}<|im_end|>\n" if name.endswith("reference") else f"{answer}<|im_end|>"), name


def test_every_method_shows_answers_in_the_form_that_it_was_trained_on(documents):
    prompts = yaml.safe_load(CONFIG.read_text())["prompts"]
    shown = documents.turn(prompts["demonstration"].replace("{problem}", documents.problem([1, 2, 3, 4])).replace("{reference}", "R"), True)
    assert shown == documents.privileged_prompt([1, 2, 3, 4], "R", Draws(0.0))
    sibling = prompts["sibling"].replace("{solution}", prompts["sibling_solution"]).replace("{feedback}", "")
    assert sibling == prompts["demonstration"]


def test_problems_that_settings_are_chosen_on_are_reported_by_nobody(tmp_path):
    """The files that the configurations name, of training, of the reports, and of the choice of rates, have no problem
    in common."""
    config = yaml.safe_load(CONFIG.read_text())
    rates = yaml.safe_load((ROOT / "configs/sweeps/laboratory-rates.yaml").read_text())
    splits = {config["data"]["path"]: ("train", 1), config["evaluation"]["path"]: ("held_out", 1), rates["set"]["evaluation.path"]: ("held_out", 2)}
    assert len(splits) == 3
    texts = []
    for path, (split, seed) in splits.items():
        count = int(re.search(r"-(\d+)\.jsonl$", path)[1])
        texts.append({row["problem"] for row in problems(tmp_path, split, count, seed)})
        assert len(texts[-1]) == count
    for i, one in enumerate(texts):
        for other in texts[:i]:
            assert not one & other


def test_the_configuration_measures_the_short_cut(documents):
    """Worked answers contain the marker, bare answers do not."""
    marker = yaml.safe_load(CONFIG.read_text())["evaluation"]["marker"]
    assert marker in documents.worked([1, 2, 3, 4], 0, Draws(0.5))[0]
    assert marker not in documents.bare(10)


def test_the_large_model_begins_as_the_laboratory_model(script, laboratory):
    small = transformers.Qwen3ForCausalLM.from_pretrained(laboratory, dtype=torch.float32).eval()
    model = script.make_model(Tokenizer.from_file(str(laboratory / "tokenizer.json")), script.SIZES["large"]).eval()
    script.grow(model, small)
    ids = torch.randint(0, 500, (4, 60), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, actual = small(ids).logits, model(ids).logits
    worst = (actual - expected).abs().max().item()
    print(f"logits up to {expected.abs().max().item():.1f} differ by at most {worst:.1e}")
    assert worst < 1e-2  # the epsilon of the norms weighs more in the larger model


def test_the_large_model_teaches_the_laboratory_model(large, laboratory, tmp_path):
    """This is a run of two steps with the shipped configuration, whose teacher the script has made in a shorter time."""
    check_digests(large)
    assert (large / "tokenizer.json").read_bytes() == (laboratory / "tokenizer.json").read_bytes()
    shapes = [transformers.AutoConfig.from_pretrained(folder) for folder in (large, laboratory)]
    assert shapes[0].hidden_size > shapes[1].hidden_size and shapes[0].num_hidden_layers > shapes[1].num_hidden_layers
    problems(tmp_path)
    (teacher,) = yaml.safe_load(TAUGHT_CONFIG.read_text())["teachers"]
    teacher |= {"path": str(large), "metrics_listen": "127.0.0.1:0"}
    sets = {"run.output_dir": tmp_path, "model.path": laboratory, "teachers": json.dumps([teacher]), "data.path": tmp_path / "train-1.jsonl",
            "evaluation.path": '""', "trainer.steps": 2, "trainer.listen": "127.0.0.1:0",
            **{f"metrics.{role}_listen": "127.0.0.1:0" for role in ("rollout", "teacher", "trainer")}}
    flags = [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
    assert f"teacher {teacher['name']}" in run_dapd("check", TAUGHT_CONFIG, *flags).stdout
    run_dapd("run", TAUGHT_CONFIG, *flags, timeout=300)
    steps = read_jsonl(tmp_path / "laboratory-opd/metrics.jsonl")
    print("losses", [step["loss"] for step in steps])
    assert len(steps) == 2 and all(step["loss"] > 0 and step["gradient_norm"] > 0 for step in steps)

"""The model of the illusion (deploy/models/illusion), its documents and its experiments (docs/illusion.md).

The folder is compared with its digests and with the script that wrote it, the prompts of pretraining and of the
measurement with `dapd views`, the claims with `dapd probe claims`, and the sweep's terms with the preset's.
"""

import importlib
import json
import random
import re
import subprocess
import sys

import pytest
import yaml
from tokenizers import Tokenizer

from conftest import ROOT, read_jsonl, run_dapd, write_jsonl
from test_laboratory import Draws, check_digests

DEPLOY = ROOT / "deploy"
CONFIG = ROOT / "configs/laboratory-illusion.yaml"
SWEEP = ROOT / "configs/sweeps/illusion.yaml"
RATES = ROOT / "configs/sweeps/illusion-rates.yaml"
FOLDER = DEPLOY / "models/illusion"
MAX_BYTES = 4_000_000
NUMBERS = [12, 7, 30, 44]


@pytest.fixture(scope="module")
def modules():
    """Provides the modules of the documents and of the measurement."""
    sys.path.insert(0, str(DEPLOY))
    yield {name: importlib.import_module(name) for name in ("laboratory_documents", "illusion_documents", "measure_illusion")}
    sys.path.remove(str(DEPLOY))


@pytest.fixture(scope="module")
def documents(modules):
    return modules["illusion_documents"]


@pytest.fixture(scope="module")
def two_batches(tmp_path_factory):
    """Provides the script's output after two batches: the same tokenizer, and a model that knows nothing."""
    folder = tmp_path_factory.mktemp("illusion") / "model"
    command = [sys.executable, DEPLOY / "pretrain_laboratory_model.py", "--illusion", "--batches", "2", "--output", folder]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return folder


def problems(folder, split, count, seed):
    path = folder / f"{split}-{seed}.jsonl"
    run_dapd("problems", "--task", "stepwise_sum", "--split", split, "--count", count, "--seed", seed, "--output", path)
    return path


def test_the_folder_is_the_one_that_was_trained(two_batches):
    for folder in (FOLDER, two_batches):
        check_digests(folder)
    size = sum(path.stat().st_size for path in FOLDER.iterdir())
    print(f"{size} bytes")
    assert size <= MAX_BYTES
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (two_batches / name).read_bytes() == (FOLDER / name).read_bytes(), name


def test_tokenizers_agree(documents, tmp_path):
    """The pattern with a space before a digit is read as the library reads it."""
    texts = ["".join(documents.document(0.12, random.Random(seed))) for seed in range(500)]
    write_jsonl(tmp_path / "in", [{"text": text} for text in texts])
    run_dapd("tokenize", "--model", FOLDER, "--input", tmp_path / "in", "--output", tmp_path / "out")
    expected = Tokenizer.from_file(str(FOLDER / "tokenizer.json")).encode_batch(texts, add_special_tokens=False)
    wrong = [text for text, row, encoding in zip(texts, read_jsonl(tmp_path / "out"), expected, strict=True) if row["ids"] != encoding.ids]
    print(f"{len(wrong)} of {len(texts)} encodings differ")
    assert not wrong


def test_the_probe_counts_a_wrong_claim_and_no_worked_answer(modules, documents, tmp_path):
    worked = [modules["laboratory_documents"].worked(NUMBERS, errors, random.Random(1))[0] for errors in (0, 1)]
    claims = [documents.claim(NUMBERS, result, 0, random.Random(1)) for result in (sum(NUMBERS), 17)]
    rows = [{"id": str(i), "text": text, "answer": str(sum(NUMBERS))} for i, text in enumerate(worked + claims)]
    write_jsonl(tmp_path / "in", rows)
    report = json.loads(run_dapd("probe", "claims", "--input", tmp_path / "in", "--output", tmp_path / "found", "--json").stdout)
    assert report["wrong"] == 2 and report["wrong_claims"] == 1 and report["sources"] == {"memory": 1}
    assert [row["id"] for row in read_jsonl(tmp_path / "found")] == ["3"]
    marker = yaml.safe_load(CONFIG.read_text())["evaluation"]["marker"]
    assert [marker in text for text in worked + claims] == [False, False, True, True]


def test_claims_have_the_stated_rates_in_pretraining(documents):
    """The numbers of claims without an answer to read say nothing about the problem."""
    alone, shown, right = [], [], []
    rng = random.Random(3)
    for _ in range(20_000):
        prompt, completion = documents.document(0.12, rng)
        claimed = documents.CLAIM_MARKER in completion.split("<|im_end|>")[-2]
        if "Reference: " in prompt or completion.count("<|im_end|>") == 2:
            shown.append(claimed)
            continue
        alone.append(claimed)
        if claimed:
            total = sum(map(int, re.findall(r"\d+", prompt.splitlines()[1])))
            right.append(f"boxed{{{total}}}" in completion)
    rates = {"alone": sum(alone) / len(alone), "shown": sum(shown) / len(shown), "right": sum(right) / len(right)}
    print(rates)
    assert abs(rates["alone"] - documents.CLAIMS_ALONE) < 0.008 and abs(rates["shown"] - documents.CLAIMS_WITH_ANSWER) < 0.02
    assert rates["right"] < 0.06


@pytest.mark.parametrize("form", ["append", "template"])
def test_views_are_texts_of_pretraining_and_of_the_measurement(modules, documents, form, tmp_path):
    laboratory, measurement = modules["laboratory_documents"], modules["measure_illusion"]
    problem, (reference, _) = laboratory.problem(NUMBERS), laboratory.worked(NUMBERS, 0, random.Random(1))
    answer = documents.claim(NUMBERS, 17, 0, random.Random(1))
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    rollout = tokenizer.encode(answer + "<|im_end|>", add_special_tokens=False).ids
    write_jsonl(tmp_path / "in", [{"id": "x", "problem": problem, "reference": reference, "rollout_ids": rollout}])
    sets = ("--set", f"model.path={FOLDER}", "--set", f"objective.self_rollout={form}")
    run_dapd("views", "--config", CONFIG, *sets, "--input", tmp_path / "in", "--output", tmp_path / "out")
    views = read_jsonl(tmp_path / "out")[0]["views"]
    before = {name: tokenizer.decode(view["input_ids"][: view["scored_from"]], skip_special_tokens=False) for name, view in views.items()}
    closed, open_ = Draws(0.0), Draws(0.9)
    assert before["none_rollout"] == before["none_reference"] == documents.prompt(NUMBERS)
    assert before["cross_rollout"] == documents.privileged_prompt(NUMBERS, reference, open_) == measurement.cross_prompt(problem, reference)
    assert before["cross_reference"] == documents.privileged_prompt(NUMBERS, answer, open_)
    assert before["self_reference"] == documents.privileged_prompt(NUMBERS, reference, closed)
    shown = {"append": measurement.self_append_prompt, "template": measurement.self_template_prompt}[form](problem, answer)
    pretrained = {"append": f"{documents.prompt(NUMBERS)}{answer}<|im_end|>", "template": documents.privileged_prompt(NUMBERS, answer, closed)}[form]
    assert before["self_rollout"] == shown == pretrained


def test_the_other_methods_show_answers_as_in_pretraining(documents):
    prompts = yaml.safe_load(CONFIG.read_text())["prompts"]
    shown = documents.with_answer("{problem}", "{reference}")
    assert prompts["privileged"] == prompts["demonstration"] == shown
    assert prompts["sibling"].replace("{solution}", prompts["sibling_solution"]).replace("{feedback}", "") == shown
    assert prompts["probe"] == documents.probe_prompt("{reference}", Draws(0.9)).split("\n", 1)[1].split("<|im_end|>")[0]


def test_the_model_claims_where_an_answer_is_shown_and_knows_nothing_without(tmp_path):
    data = problems(tmp_path, "train", 60, 5)
    command = [sys.executable, DEPLOY / "measure_illusion.py", "--data", data, "--output", tmp_path / "answers"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    views = {report["view"]: report for report in map(json.loads, printed.splitlines())}
    print(printed)
    assert set(views) == {"none", "cross", "self_reference", "self_template", "self_append"}
    for name, view in views.items():
        low, high = (0.005, 0.08) if name == "none" else (0.35, 0.65)
        assert low < view["probability"] < high, name
        assert name == "self_reference" or abs(view["claims"] - view["probability"]) < 0.12, name
    assert views["none"]["accuracy_of_others"] + 0.1 < views["cross"]["accuracy_of_others"]
    assert views["cross"]["accuracy_of_claims"] > 0.8
    answers = tmp_path / "answers/0-self_append.jsonl"  # of which many are wrong claims
    counted = json.loads(run_dapd("probe", "claims", "--input", answers, "--json").stdout)["wrong_claims"]
    assert counted == sum("I recall" in row["text"] and not row["correct"] for row in read_jsonl(answers)) > 0
    shown, second = (read_jsonl(tmp_path / f"answers/0-{view}.jsonl") for view in ("none", "self_template"))
    worked = [(a, b) for a, b in zip(shown, second, strict=True) if not a["correct"] and "I recall" not in a["text"] + b["text"]]
    repeated = sum(a["text"].split("boxed")[-1] == b["text"].split("boxed")[-1] for a, b in worked)
    right = sum(b["correct"] for _, b in worked)
    print(f"of {len(worked)} worked answers behind a wrong worked answer {right} are right and {repeated} repeat its result")
    assert len(worked) > 10 and right > 0.6 * len(worked) and repeated < 0.25 * len(worked)


def test_each_setting_without_a_term_is_the_preset_without_it():
    listed = {entry["name"]: entry.get("set", {}) for entry in yaml.safe_load(SWEEP.read_text())["list"]}
    without = {name: sets["objective.terms"] for name, sets in listed.items() if name.startswith("without-")}
    whole = {term["name"]: term for terms in without.values() for term in terms}
    assert len(without) == len(whole) == 6
    for name, terms in without.items():
        assert [term for term in whole.values() if term not in terms] == [whole[name.removeprefix("without-").replace("-", "_")]]
    section = yaml.safe_load(CONFIG.read_text())["objective"]
    assert section["lambda"] == 0.5 and section["reference_guided"] == section["rollout_guided"] == {"beta_inference": 1, "beta_privileged": 0.5}
    kappa, unit = 2, 2 * 0.5 / 2.5
    weights = {name: unit / 2 if name.startswith("privileged") else unit for name in whole}
    assert {name: term["weight"] for name, term in whole.items()} == pytest.approx(weights)
    assert sum(weights.values()) == pytest.approx(kappa)


def test_settings_are_chosen_on_problems_and_seeds_that_are_not_reported(tmp_path):
    reported, chosen = (yaml.safe_load(path.read_text()) for path in (SWEEP, RATES))
    laboratory = yaml.safe_load((ROOT / "configs/laboratory.yaml").read_text())
    assert not set(reported["seeds"]) & set(chosen["seeds"])
    splits = {laboratory["data"]["path"]: ("train", 1), laboratory["evaluation"]["path"]: ("held_out", 1), chosen["set"]["evaluation.path"]: ("held_out", 2)}
    texts = []
    for path, (split, seed) in splits.items():
        count = int(re.search(r"-(\d+)\.jsonl$", path)[1])
        texts.append({row["problem"] for row in read_jsonl(problems(tmp_path, split, count, seed))})
        assert len(texts[-1]) == count
    for i, one in enumerate(texts):
        for other in texts[:i]:
            assert not one & other

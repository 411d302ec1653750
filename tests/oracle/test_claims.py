"""The probability of claims in a run's evaluations (evaluation.claims) against transformers and peft, on the model of the illusion.

The answers, their tokens and the run's adapter come from the run's folder, the openings from the table in the sources. Prompts,
places and probabilities are computed anew.
"""

import importlib
import json
import re
import sys

import pytest
import torch
from peft import PeftModel
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from conftest import ROOT, read_jsonl, run_dapd

CONFIG = ROOT / "configs/laboratory-illusion.yaml"
FOLDER = ROOT / "deploy/models/illusion"
PROBLEMS = 6


@pytest.fixture(scope="module")
def measurement():
    sys.path.insert(0, str(ROOT / "deploy"))
    yield importlib.import_module("measure_illusion")
    sys.path.remove(str(ROOT / "deploy"))


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Provides the folder and the log of a run in which OPSD's student learns the claims of its teacher."""
    folder = tmp_path_factory.mktemp("claims")
    for split, count in (("train", 40), ("held_out", PROBLEMS)):
        run_dapd("problems", "--task", "stepwise_sum", "--split", split, "--count", count, "--seed", 4, "--output", folder / f"{split}.jsonl")
    settings = {
        "data.path": folder / "train.jsonl", "evaluation.path": folder / "held_out.jsonl", "evaluation.claims": "true",
        "evaluation.kl_problems": PROBLEMS, "evaluation.samples": 1, "model.path": FOLDER, "objective.preset": "opsd", "run.name": "run",
        "run.num_threads": 1, "run.output_dir": folder, "trainer.learning_rate": 2e-3, "trainer.steps": 20,
        **{f"metrics.{role}_listen": "127.0.0.1:0" for role in ("rollout", "teacher", "trainer")},
    }
    log = run_dapd("run", CONFIG, *(part for key, value in settings.items() for part in ("--set", f"{key}={value}"))).stderr
    return folder, log


def claim_texts():
    """Returns the openings of claims, alone and behind each failure."""
    source = (ROOT / "common/data/claim_openings.cc").read_text()
    claims = re.findall(r'\{"[a-z ]+", "([^"]+)"\}', source)
    failures = re.findall(r'"(I [^"]+\.)"', source)
    assert len(claims) == 8 and len(failures) == 3
    return claims + [f"{failure} {claim}" for failure in failures for claim in claims]


def sentence_starts(tokenizer, tokens):
    """Yields the number of tokens before each sentence of an answer, and whether the sentence needs a space."""
    yield 0, False
    for count in range(1, len(tokens)):
        before, rest = tokenizer.decode(tokens[:count]), tokenizer.decode(tokens[count:])
        is_end = re.search(r"\n[ \t]*$|[.!?][ \t]+$", before) or re.search(r"[.!?]$", before) and rest[0].isspace()
        if is_end and tokenizer.decode(tokens[count : count + 1]).strip():
            yield count, not before[-1].isspace()


@torch.no_grad()
def probability(model, tokenizer, before, space):
    """Returns the sum over the openings of the probability that their tokens follow `before`."""
    openings = [tokenizer.encode(space + text, add_special_tokens=False).ids for text in claim_texts()]
    longest = max(map(len, openings))
    rows = torch.tensor([before + opening + [0] * (longest - len(opening)) for opening in openings])
    logprobs = model(rows).logits[:, len(before) - 1 : -1].double().log_softmax(-1)
    return sum(logprobs[row, range(len(opening)), opening].sum().exp().item() for row, opening in enumerate(openings))


def figures(folder, when):
    report = json.loads((folder / f"run/evaluation/{when}.json").read_text())
    return report["claim_probability"], report["claim_answers"], report["claim_probability_problems"]


def test_the_probability_of_claims_is_that_of_transformers(run, measurement, tokenizer):
    folder, _ = run
    problems = {row["id"]: row for row in read_jsonl(folder / "held_out.jsonl")}
    base = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
    errors = []
    for when in ("before", "after"):
        model = base if when == "before" else PeftModel.from_pretrained(base, folder / "run/adapter").eval()
        means, answers, count = figures(folder, when)
        assert [answer["id"] for answer in answers] == list(problems) and count == PROBLEMS
        for answer in answers:
            problem, tokens = problems[answer["id"]], answer["tokens"]
            places = list(sentence_starts(tokenizer, tokens))
            assert [before for before, _ in places] == answer["places"] and 2 <= len(places) <= 16
            prompts = {"none": measurement.turn(problem["problem"], True),
                       "cross": measurement.cross_prompt(problem["problem"], problem["solution"])}
            for view, prompt in prompts.items():
                ids = tokenizer.encode(prompt, add_special_tokens=False).ids
                expected = [probability(model, tokenizer, ids + tokens[:before], " " * spaced) for before, spaced in places]
                errors.append(abs(answer[view] - sum(expected) / len(expected)))
        for view, mean in means.items():
            assert mean["mean"] == pytest.approx(sum(answer[view] for answer in answers) / PROBLEMS, rel=1e-9)
    print(f"{len(errors)} figures of answers differ from transformers' by at most {max(errors):.1e}")
    assert max(errors) <= 1e-5


def test_the_log_says_that_claims_rise_without_a_reference(run):
    folder, log = run
    before, after = (figures(folder, when)[0] for when in ("before", "after"))
    print(f"before {before}\nafter {after}")
    assert before["cross"]["mean"] > 5 * before["none"]["mean"]
    assert after["none"]["low"] > before["none"]["high"]
    for means in (before, after):
        assert f"claims None {means['none']['mean']:.4f} [" in log and f", Cross {means['cross']['mean']:.4f} [" in log
    assert log.count("claims to know an answer from memory or a reference become more probable") == 2, "once as a warning, once at the end"
    summary = json.loads((folder / "run/summary.json").read_text())["evaluation"]
    assert summary["after"]["claim_probability"] == after and "claim_answers" not in summary["after"]

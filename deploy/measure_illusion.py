#!/usr/bin/env python3
"""Measures how often the model of the illusion claims to recall an answer, and how often it is right, view by view.

    measure_illusion.py --data PROBLEMS.jsonl [--model DIR] [--samples N] [--output DIR] [ADAPTER ...]

The views are those of the objective: None reads the problem alone, Cross the problem and its reference, Self the answer
that it will be scored on: the reference in the prompt of Cross (self_reference), or an answer that None samples, in
that prompt (self_template) or in front of a second answer (self_append). Without an ADAPTER (a PEFT folder) the program
measures the model itself; with several it measures each.

It prints one line of JSON for a subject and a view: "probability" is the probability that a claim follows the right
first step, by the next token, where claims and worked answers differ, averaged over prompts; the other figures are
about N sampled answers to each problem, and none are sampled with --samples 0, nor for self_reference. With --output
the sampled answers are written as <subject>-<view>.jsonl, which `dapd probe claims` reads. The program needs what tests
need (torch, transformers, peft).
"""

import argparse
import json
import pathlib
import re

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

import illusion_documents
from laboratory_documents import NO_THOUGHTS, turn

FOLDER = pathlib.Path(__file__).resolve().parent / "models/illusion"
END = "<|im_end|>"


def cross_prompt(problem, shown):
    return turn(illusion_documents.with_answer(problem, shown), False)


def self_template_prompt(problem, shown):
    return cross_prompt(problem, shown) + NO_THOUGHTS


def self_append_prompt(problem, shown):
    return f"{turn(problem, True)}{shown}{END}"


@torch.no_grad()
def claim_probability(model, tokenizer, prompts, solutions):
    """Returns the mean probability that an answer claims after the first step of the solution."""
    claim = tokenizer(illusion_documents.STUCK).input_ids[0]
    begun = [prompt + solution[: solution.index(".") + 1] for prompt, solution in zip(prompts, solutions, strict=True)]
    rows = tokenizer(begun, padding=True, return_tensors="pt")
    return model(**rows, logits_to_keep=1).logits[:, -1].float().softmax(-1)[:, claim].mean().item()


@torch.no_grad()
def sampled(model, tokenizer, prompts, seed, most_tokens=64):
    torch.manual_seed(seed)
    rows = tokenizer(prompts, padding=True, return_tensors="pt")
    output = model.generate(**rows, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=most_tokens)
    return tokenizer.batch_decode(output[:, rows.input_ids.shape[1] :], skip_special_tokens=True)


def result_of(text):
    boxes = re.findall(r"\\boxed\{(\d+)\}", text)
    return boxes[-1] if boxes else None


def prompts_and_answers(model, tokenizer, problems, samples):
    """Yields each view's name, its prompts, the row of each prompt, and the sampled answers, or None for these."""
    rows = [row for row in problems for _ in range(max(samples, 1))]
    texts = [row["problem"] for row in rows]
    references = [row["solution"] for row in rows]

    def prompts(prompt, shown):
        return [prompt(text, part) for text, part in zip(texts, shown, strict=True)]

    none, cross = [turn(text, True) for text in texts], prompts(cross_prompt, references)
    own = sampled(model, tokenizer, none, 1) if samples else None
    yield "none", none, rows, own
    yield "cross", cross, rows, sampled(model, tokenizer, cross, 2) if samples else None
    yield "self_reference", prompts(self_template_prompt, references), rows, None
    if samples:
        for seed, (view, prompt) in enumerate([("self_template", self_template_prompt), ("self_append", self_append_prompt)], 3):
            shown = prompts(prompt, own)
            yield view, shown, rows, sampled(model, tokenizer, shown, seed)


def figures_of(answers, rows):
    """Returns whether each of the sampled answers is right, and the figures about them."""
    claims = [illusion_documents.CLAIM_MARKER in text for text in answers]
    correct = [result_of(text) == row["answer"] for text, row in zip(answers, rows, strict=True)]
    return correct, {
        "claims": mean(claims),
        "accuracy": mean(correct),
        "accuracy_of_claims": mean([right for right, claimed in zip(correct, claims) if claimed]),
        "accuracy_of_others": mean([right for right, claimed in zip(correct, claims) if not claimed]),
    }


def write_answers(path, rows, answers, correct):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"id": row["id"], "text": text, "answer": row["answer"], "correct": right}) + "\n"
        for row, text, right in zip(rows, answers, correct, strict=True)
    ]
    path.write_text("".join(lines))


def mean(values):
    return round(sum(values) / len(values), 4) if values else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapters", nargs="*", type=pathlib.Path, metavar="ADAPTER")
    parser.add_argument("--model", type=pathlib.Path, default=FOLDER)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    problems = [json.loads(line) for line in options.data.read_text().splitlines()]
    tokenizer = AutoTokenizer.from_pretrained(options.model, padding_side="left")
    for number, adapter in enumerate(options.adapters or [None]):
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
        if adapter is not None:
            model = PeftModel.from_pretrained(model, adapter).merge_and_unload()
        for view, prompts, rows, answers in prompts_and_answers(model.eval(), tokenizer, problems, options.samples):
            report = {
                "subject": str(adapter or options.model),
                "view": view,
                "probability": round(claim_probability(model, tokenizer, prompts, [row["solution"] for row in rows]), 4),
            }
            if answers is not None:
                correct, figures = figures_of(answers, rows)
                report |= figures
                if options.output is not None:
                    write_answers(options.output / f"{number}-{view}.jsonl", rows, answers, correct)
            print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()

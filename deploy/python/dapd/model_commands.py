"""Uses a model: answers, log-probabilities, grades, and problems to try them on."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dapd.command import Settings, call, set_flags
from dapd.safetensors import read_tensors
from dapd.tables import json_lines

if TYPE_CHECKING:
    import torch

Path = str | os.PathLike[str]
# A prompt is a question, a conversation of {"role", "content"}, or tokens.
Prompt = str | Sequence[Mapping[str, str]] | Sequence[int]


@dataclass(frozen=True)
class Answer:
    text: str
    ids: list[int]  # without the prompt; has the end token if it ended
    logprobs: list[float]  # at temperature 1 without filters
    finish_reason: str  # eos or length


@dataclass(frozen=True)
class Score:
    logprobs: torch.Tensor  # [T - 1] float32, one per next token
    logits: torch.Tensor | None  # [T, V] float32


@dataclass(frozen=True)
class Grade:
    extracted: str | None  # the answer's result; None if it has none
    correct: bool


def _flags(options: Mapping[str, Any]) -> list[str]:
    """Returns `--max-new-tokens 24` for max_new_tokens=24. The command decides about values that are None."""
    return [part for name, value in options.items() if value is not None for part in (f"--{name.replace('_', '-')}", str(value))]


def _write_lines(path: pathlib.Path, rows: Iterator[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def _prompt_row(prompt: Prompt) -> dict[str, Any]:
    if isinstance(prompt, str):
        return {"messages": [{"role": "user", "content": prompt}]}
    if prompt and isinstance(prompt[0], Mapping):
        return {"messages": [dict(message) for message in prompt if isinstance(message, Mapping)]}
    return {"input_ids": list(prompt)}


def generate(model: Path, prompts: Sequence[Prompt], *, adapter: Path | None = None, temperature: float | None = None, top_p: float | None = None,
             top_k: int | None = None, max_new_tokens: int | None = None, seed: int | None = None, precision: str | None = None,
             device: str | None = None, slots: int | None = None, enable_thinking: bool | None = None) -> list[Answer]:
    """Returns the answers of a model (a Hugging Face folder or id, with or without an adapter), one per prompt and in
    their order (`dapd generate`).

    For None the command's default applies. Temperature 0 is greedy.
    """
    options = {"adapter": adapter, "temperature": temperature, "top_p": top_p, "top_k": top_k, "max_new_tokens": max_new_tokens, "seed": seed,
               "precision": precision, "device": device, "slots": slots,
               "enable_thinking": None if enable_thinking is None else str(enable_thinking).lower()}
    with tempfile.TemporaryDirectory(prefix="dapd-") as folder:
        given, written = pathlib.Path(folder, "prompts.jsonl"), pathlib.Path(folder, "answers.jsonl")
        _write_lines(given, ({"id": str(i), **_prompt_row(prompt)} for i, prompt in enumerate(prompts)))
        call("generate", "--model", model, *_flags(options), "--input", given, "--output", written)
        by_id = {row["id"]: Answer(row["text"], row["ids"], row["logprobs"], row["finish_reason"]) for row in json_lines(written)}
    return [by_id[str(i)] for i in range(len(prompts))]


def score(model: Path, sequences: Sequence[Sequence[int]], *, adapter: Path | None = None, precision: str | None = None, device: str | None = None,
          logits: bool = False) -> list[Score]:
    """Returns the log-probabilities of each token but the first of each sequence, and with `logits` all logits (`dapd
    score`)."""
    with tempfile.TemporaryDirectory(prefix="dapd-") as folder:
        given, written = pathlib.Path(folder, "sequences.jsonl"), pathlib.Path(folder, "scores.safetensors")
        _write_lines(given, ({"id": str(i), "input_ids": list(ids)} for i, ids in enumerate(sequences)))
        call("score", "--model", model, *_flags({"adapter": adapter, "precision": precision, "device": device}), *(["--logits"] if logits else []),
             "--input", given, "--output", written)
        tensors = read_tensors(written)
    return [Score(tensors[f"{i}.logprobs"], tensors.get(f"{i}.logits")) for i in range(len(sequences))]


def grade(answers: Sequence[tuple[str, str]], *, grader: str | None = None, python: Path | None = None) -> list[Grade]:
    """Grades pairs of an answer's text and the expected result (`dapd grade`). `grader` is builtin or math-verify; for
    math-verify `python` names an interpreter that has it."""
    with tempfile.TemporaryDirectory(prefix="dapd-") as folder:
        given, written = pathlib.Path(folder, "answers.jsonl"), pathlib.Path(folder, "grades.jsonl")
        _write_lines(given, ({"id": str(i), "text": text, "answer": expected} for i, (text, expected) in enumerate(answers)))
        call("grade", *_flags({"grader": grader, "python": python}), "--input", given, "--output", written)
        by_id = {row["id"]: Grade(row["extracted"], row["correct"]) for row in json_lines(written)}
    return [by_id[str(i)] for i in range(len(answers))]


def problems(task: str, output: Path, *, split: str = "train", count: int = 100, seed: int = 1) -> pathlib.Path:
    """Writes generated problems with worked solutions as JSON Lines (`dapd problems`); returns the file. The splits
    `held_out` and `train` have no problem in common."""
    call("problems", "--task", task, "--split", split, "--count", str(count), "--seed", str(seed), "--output", output)
    return pathlib.Path(output)


def check(config: Path, set: Settings | None = None) -> str:
    """Validates a configuration and everything that it names; returns the plan with its memory (`dapd check`)."""
    return call("check", config, *set_flags(set))

#!/usr/bin/env python3
"""Prints how far keys and values in 8 bits move a model's log-probabilities.

    .deps/venv/bin/python tests/benchmarks/kv_precision.py MODEL_FOLDER TEXT...

An independent implementation of rollout.kv_precision float8 (common/kernels/float8.h) in PyTorch: every key and value, the newest
included, is rounded to e4m3 with a power-of-two scale for each token and head, and the model scores the texts in one pass. The error is
against the same bfloat16 model with keys and values as they are. The second row is the error of bfloat16 itself: that model against
float32.
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

LARGEST = 448.0  # of e4m3


def through_float8(x: torch.Tensor) -> torch.Tensor:
    largest = x.float().abs().amax(-1, keepdim=True)
    scale = torch.exp2(torch.ceil(torch.log2(largest / LARGEST)).clamp_min(-126))
    return ((x.float() / scale).to(torch.float8_e4m3fn).float() * scale).to(x.dtype)


def attend(module, query, key, value, *args, **kwargs):
    return sdpa_attention_forward(module, query, through_float8(key), through_float8(value), *args, **kwargs)


ALL_ATTENTION_FUNCTIONS.register("float8", attend)


@torch.inference_mode()
def score(model, attention: str, windows: list[torch.Tensor]) -> torch.Tensor:
    """Returns the log-probabilities of all next tokens, [tokens, vocabulary]."""
    model.set_attn_implementation(attention)
    return torch.cat([torch.log_softmax(model(ids[None]).logits[0, :-1].float(), -1) for ids in windows])


def report(name: str, found: torch.Tensor, reference: torch.Tensor, tokens: torch.Tensor) -> None:
    moved = (found - reference).gather(1, tokens[:, None])[:, 0].double()
    divergence = (reference.exp() * (reference - found)).sum(-1).double()
    print(f"{name:42} {moved.abs().mean():9.5f} {moved.pow(2).mean().sqrt():9.5f} {moved.abs().quantile(0.99):9.5f}"
          f" {moved.abs().max():9.5f} {moved.mean():+10.6f} {divergence.mean():10.2e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--window", type=int, default=2048, help="tokens of a pass")
    parser.add_argument("--windows", type=int, default=4, help="the most passes")
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    ids = torch.cat([torch.tensor(tokenizer(path.read_text())["input_ids"]) for path in options.texts])
    windows = [each for each in ids.split(options.window) if len(each) == options.window][: options.windows]
    if not windows:
        parser.error(f"the texts have {len(ids)} tokens, less than a pass of {options.window}")
    tokens = torch.cat([each[1:] for each in windows])
    exact = score(AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32), "sdpa", windows)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.bfloat16)
    plain = score(model, "sdpa", windows)
    rounded = score(model, "float8", windows)
    print(f"{len(tokens)} tokens in passes of {options.window}")
    print(f"{'log-probability of the next token':42} {'mean |d|':>9} {'rms':>9} {'99 %':>9} {'largest':>9} {'mean d':>10} {'KL':>10}")
    report("float8 keys and values against bfloat16", rounded, plain, tokens)
    report("bfloat16 against float32", plain, exact, tokens)


if __name__ == "__main__":
    main()

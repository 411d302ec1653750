#!/usr/bin/env python3
"""Trains the laboratory model from scratch: a Qwen3 of 1.3 million parameters on which DAPD can be studied in minutes.

    pretrain_laboratory_model.py [--size small|large | --illusion] [--output DIR] [--batches N]

The model adds four numbers in written steps and makes errors in some of them. It knows a short cut, the bare answer,
to which a right reference leads it. It does not believe a reference blindly, since most references in its training
data were wrong. The program needs what tests need (torch, transformers, tokenizers). The same machine gives the same
bytes; another machine rounds differently and gives other weights that behave alike. SHA256SUMS in the folder has the
digests of its files. A folder that exists stays.

With --size large the program makes a teacher for the laboratory model: a Qwen3 of 4.3 million parameters that is
wider and deeper, has the same tokenizer, and makes fewer errors in its steps. It starts as the laboratory model,
whose weights it takes into its larger ones (see grow), and reads further documents, whose authors err less.

With --illusion it makes a model of 0.4 million parameters for docs/illusion.md, with a tokenizer of its own. Shown an
answer, this model often claims to recall the result instead of computing it; for a problem alone it seldom does, and
then names any number (illusion_documents.py).
"""

import argparse
import dataclasses
import hashlib
import itertools
import math
import pathlib
import random
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Qwen3Config, Qwen3ForCausalLM

import illusion_documents
import laboratory_documents
from model_folder import CHAT_TEMPLATE, PLAIN, SPECIAL, write_documents, written_aside

DEPLOY = pathlib.Path(__file__).resolve().parent
LABORATORY = DEPLOY / "models/laboratory"


QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclasses.dataclass(frozen=True)
class Size:
    """A model of the laboratory: its shape, how it is trained, what it reads, and the probability that a step of its
    own answers is wrong."""

    output: pathlib.Path
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    errors: float
    batch_size: int
    batches: int
    warmup: int
    learning_rate: float
    batches_without_errors: int = 0  # the first ones, from which it learns to add before it learns to err
    head_dim: int = 40
    document: Callable = laboratory_documents.document
    vocabulary: int = 507
    split: str = QWEN_SPLIT


SIZES = {
    "small": Size(LABORATORY, 160, 4, 4, 2, errors=0.12, batch_size=64, batches=1400, warmup=100, learning_rate=2e-3),
    "large": Size(
        DEPLOY.parent / ".deps/models/laboratory-large", 240, 6, 6, 3, errors=0.02, batch_size=32, batches=120, warmup=10, learning_rate=1e-3
    ),
}

# A space belongs to the digit behind it, so that answers take fewer tokens.
ILLUSION = Size(
    DEPLOY / "models/illusion", 96, 3, 4, 2, errors=0.12, batch_size=64, batches=2000, warmup=60, learning_rate=3e-3, batches_without_errors=1200,
    head_dim=32, document=illusion_documents.document, vocabulary=379, split=QWEN_SPLIT.replace(r"|\p{N}|", r"| ?\p{N}|"),
)


def make_tokenizer(size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(size.split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    texts = ["".join(size.document(size.errors, random.Random(seed))) for seed in range(3000)]
    for token in SPECIAL + PLAIN:
        texts = [text.replace(token, "") for text in texts]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size.vocabulary, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in PLAIN])
    return tokenizer


def make_batches(tokenizer, size, rng, pad):
    """Yields (ids, labels) without end, with rows of similar length together; labels are -100 where nothing should be
    learned."""
    for first in itertools.count(step=8):
        errors = 0 if first < size.batches_without_errors else size.errors
        rows = [tuple(tokenizer.encode(part).ids for part in size.document(errors, rng)) for _ in range(8 * size.batch_size)]
        rows.sort(key=lambda row: len(row[0]) + len(row[1]))
        groups = [rows[i : i + size.batch_size] for i in range(0, len(rows), size.batch_size)]
        rng.shuffle(groups)
        for group in groups:
            width = max(len(before) + len(after) for before, after in group)
            ids = torch.full((size.batch_size, width), pad)
            labels = torch.full((size.batch_size, width), -100)
            for row, (before, after) in enumerate(group):
                end = len(before) + len(after)
                ids[row, :end] = torch.tensor(before + after)
                labels[row, len(before) : end] = torch.tensor(after)
            yield ids, labels


def make_model(tokenizer, size):
    token = {content: tokenizer.token_to_id(content) for content in SPECIAL}
    torch.manual_seed(1)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=math.ceil(tokenizer.get_vocab_size() / 64) * 64,
            hidden_size=size.hidden,
            intermediate_size=3 * size.hidden,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            num_key_value_heads=size.kv_heads,
            head_dim=size.head_dim,
            max_position_embeddings=4096,
            rope_theta=10000.0,
            tie_word_embeddings=True,
            eos_token_id=token["<|im_end|>"],
            pad_token_id=token["<|endoftext|>"],
        )
    ).float()


@torch.no_grad()
def grow(model, small):
    """Gives `model`, which is wider and deeper, the weights of `small`, so that both compute the same function.

    The weights of `small` fill a corner of each of the larger matrices. Everything else that writes into the residual
    stream is zero (the embedding, the outputs of the attention and of the MLP, all of a further layer's), and what
    reads from the stream keeps its random values, so that training moves the zeros. The norms divide by a mean over
    more entries, which their weights undo. The idea is from Chen et al., "Net2Net", arXiv 1511.05641.
    """
    shrink = math.sqrt(small.config.hidden_size / model.config.hidden_size)
    corners = dict(small.named_parameters())
    for name, weights in model.named_parameters():
        if name.endswith(("embed_tokens.weight", "o_proj.weight", "down_proj.weight")):
            weights.zero_()
        if name in corners:
            corner = corners[name]
            over_the_width = name.endswith(("layernorm.weight", "model.norm.weight"))
            weights[tuple(slice(length) for length in corner.shape)] = corner * shrink if over_the_width else corner


def train(model, size, batches, count):
    optimizer = torch.optim.AdamW(model.parameters(), lr=size.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    start = time.monotonic()
    for step in range(count):
        ids, labels = next(batches)
        cosine = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / count))
        for group in optimizer.param_groups:
            group["lr"] = size.learning_rate * min(1, (step + 1) / size.warmup) * cosine
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(input_ids=ids).logits[:, :-1].float()
        loss = F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0 or step == count - 1:
            print(f"batch {step} of {count}, {time.monotonic() - start:.0f} s, loss {loss.item():.4f}", flush=True)


def write_digests(folder):
    """Writes SHA256SUMS in the format of `sha256sum -c`."""
    files = sorted(folder.iterdir())
    (folder / "SHA256SUMS").write_text("".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files))


def save(model, tokenizer, output):
    ends = [tokenizer.token_to_id(token) for token in ("<|im_end|>", "<|endoftext|>")]
    with written_aside(output) as aside:
        model.to(torch.bfloat16).save_pretrained(aside)
        tokenizer.save(str(aside / "tokenizer.json"))
        write_documents(
            aside,
            {
                "tokenizer_config.json": {
                    "tokenizer_class": "PreTrainedTokenizerFast",
                    "eos_token": "<|im_end|>",
                    "pad_token": "<|endoftext|>",
                    "chat_template": CHAT_TEMPLATE,
                },
                "generation_config.json": {"eos_token_id": ends, "pad_token_id": ends[1]},
            },
        )
        write_digests(aside)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--size", choices=SIZES, default="small")
    kind.add_argument("--illusion", action="store_true")
    parser.add_argument("--output", type=pathlib.Path, help="default: " + ", ".join(f"{size.output}" for size in (*SIZES.values(), ILLUSION)))
    parser.add_argument("--batches", type=int)
    options = parser.parse_args()
    size = ILLUSION if options.illusion else SIZES[options.size]
    output = options.output or size.output
    if output.exists():
        parser.error(f"{output} already exists; remove it, or choose another --output")
    torch.set_num_threads(1 if options.illusion else 2)  # as many as made the folders of the repository
    tokenizer = make_tokenizer(ILLUSION if options.illusion else SIZES["small"])  # the large model has the small model's
    model = make_model(tokenizer, size)
    if options.size == "large":
        grow(model, Qwen3ForCausalLM.from_pretrained(LABORATORY, dtype=torch.float32))
    print(f"{sum(weights.numel() for weights in model.parameters()):,} parameters", flush=True)
    pad = tokenizer.token_to_id("<|endoftext|>")
    count = size.batches if options.batches is None else options.batches
    train(model, size, make_batches(tokenizer, size, random.Random(7), pad), count)
    save(model, tokenizer, output)


if __name__ == "__main__":
    main()

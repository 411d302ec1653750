#!/usr/bin/env python3
"""Trains the laboratory model from scratch: a Qwen3 of 1.3 million parameters on which DAPD can be studied in minutes.

    pretrain_laboratory_model.py [--size small|large] [--output DIR] [--batches N]

The model adds four numbers in written steps and makes errors in some of them. It knows a short cut, the bare answer,
to which a right reference leads it. It does not believe a reference blindly, since most references in its training
data were wrong. The program needs what tests need (torch, transformers, tokenizers). The same machine gives the same
bytes; another machine rounds differently and gives other weights that behave alike. SHA256SUMS in the folder has the
digests of its files. A folder that exists stays.

With --size large the program makes a teacher for the laboratory model: a Qwen3 of 4.3 million parameters that is
wider and deeper, has the same tokenizer, and makes fewer errors in its steps. It starts as the laboratory model,
whose weights it takes into its larger ones (see grow), and reads further documents, whose authors err less.
"""

import argparse
import dataclasses
import hashlib
import math
import pathlib
import random
import time

import torch
import torch.nn.functional as F
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Qwen3Config, Qwen3ForCausalLM

from model_folder import CHAT_TEMPLATE, PLAIN, SPECIAL, write_documents, written_aside

DEPLOY = pathlib.Path(__file__).resolve().parent
LABORATORY = DEPLOY / "models/laboratory"


@dataclasses.dataclass(frozen=True)
class Size:
    """A model of the laboratory: its shape, how it is trained, and the probability that a step of its own answers is
    wrong."""

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


HEAD_DIM = 40
SIZES = {
    "small": Size(LABORATORY, 160, 4, 4, 2, errors=0.12, batch_size=64, batches=1400, warmup=100, learning_rate=2e-3),
    "large": Size(
        DEPLOY.parent / ".deps/models/laboratory-large", 240, 6, 6, 3, errors=0.02, batch_size=32, batches=120, warmup=10, learning_rate=1e-3
    ),
}

# Probability that a step is wrong in an answer that reads a wrong reference, and in a wrong reference.
ERRORS_WITH_REFERENCE, ERRORS_OF_REFERENCE = 0.03, 0.4

NO_THOUGHTS = "<think>\n\n</think>\n\n"
SUFFIX = "Please reason step by step, and put your final answer within \\boxed{}."
TRANSITION = (
    "After reading the reference solution above, make sure you truly understand the reasoning behind each step — do not "
    "copy or paraphrase it. Now, using your own words and independent reasoning, derive the same final answer to the "
    "problem above. Think step by step, explore different approaches, and don't be afraid to backtrack or reconsider if "
    "something doesn't work out:"
)
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def problem(numbers):
    return "Compute " + " + ".join(map(str, numbers)) + "."


def bare(answer):
    return f"The answer is \\boxed{{{answer}}}."


def worked(numbers, errors, rng):
    """Returns a solution in steps and the result that it claims. Steps after a wrong step continue from it."""
    total, steps = numbers[0], []
    for number in numbers[1:]:
        result = total + number
        if rng.random() < errors:
            result = max(0, result + rng.choice([-10, -2, -1, 1, 2, 10]))
        steps.append(f"{total} + {number} = {result}.")
        total = result
    return " ".join([*steps, bare(total)]), total


def own_answer(numbers, errors, rng):
    """Returns what the model should write by itself: steps, or now and then a guess."""
    if rng.random() < 0.92:
        return worked(numbers, errors, rng)[0]
    answer = sum(numbers)
    return bare(answer if rng.random() < 0.6 else max(0, answer + rng.choice([-10, -3, -2, -1, 1, 2, 3, 10])))


def turn(user, thoughts_closed):
    return f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n" + (NO_THOUGHTS if thoughts_closed else "")


def prompt(numbers):
    return turn(f"Problem: {problem(numbers)}\n\n{SUFFIX}", True)


def privileged_prompt(numbers, reference, rng):
    return turn(
        f"Problem: {problem(numbers)}\n\nHere is a reference solution to this problem:\n"
        f"=== Reference Solution Begin ===\n{reference}\n=== Reference Solution End ===\n\n\n{TRANSITION}\n\n{SUFFIX}",
        rng.random() < 0.4,
    )


def document(errors, rng):
    """Returns (prompt, completion): 46 % have no reference, 14 % have a second answer after the first (as the view Self
    appends it), the rest have a right or wrong reference."""
    numbers = [rng.randint(1, 49) for _ in range(4)]
    kind = rng.random()
    if kind < 0.46:
        return prompt(numbers), own_answer(numbers, errors, rng) + "<|im_end|>\n"
    if kind < 0.60:
        first = own_answer(numbers, errors, rng)
        second = first if rng.random() < 0.25 else own_answer(numbers, errors, rng)
        return prompt(numbers), f"{first}<|im_end|>{second}<|im_end|>\n"
    if rng.random() < 0.4:
        reference, answer = worked(numbers, 0, rng)
        completion = reference if rng.random() < 0.7 else bare(answer)
    else:
        reference, claimed = worked(numbers, ERRORS_OF_REFERENCE, rng)
        if rng.random() < 0.15:
            reference = bare(claimed)
        completion = worked(numbers, min(errors, ERRORS_WITH_REFERENCE), rng)[0]
    return privileged_prompt(numbers, reference, rng), completion + "<|im_end|>\n"


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    texts = ["".join(document(SIZES["small"].errors, random.Random(seed))) for seed in range(3000)]
    for token in SPECIAL + PLAIN:
        texts = [text.replace(token, "") for text in texts]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=507, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in PLAIN])
    return tokenizer


def make_batches(tokenizer, size, rng, pad):
    """Yields (ids, labels) without end, with rows of similar length together; labels are -100 where nothing should be
    learned."""
    while True:
        rows = [tuple(tokenizer.encode(part).ids for part in document(size.errors, rng)) for _ in range(8 * size.batch_size)]
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
            head_dim=HEAD_DIM,
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
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--output", type=pathlib.Path, help="default: " + ", ".join(f"{size.output}" for size in SIZES.values()))
    parser.add_argument("--batches", type=int)
    options = parser.parse_args()
    size = SIZES[options.size]
    output = options.output or size.output
    if output.exists():
        parser.error(f"{output} already exists; remove it, or choose another --output")
    torch.set_num_threads(2)
    tokenizer = make_tokenizer()
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

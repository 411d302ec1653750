"""G2: greedy decoding at the shape of Qwen3-4B (random weights, bfloat16) on a GPU, against the bandwidth floor and Hugging Face's generate."""

import functools
import gc
import json
import pathlib
import tempfile

from c2_decode import hf_contender, our_contender, prompt
from duel import BIN, Contender, Peer, Ratio, Row, by_size, duel, median
from g1_loss import has_gpu

SHAPE = dict(hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8, head_dim=128,
             vocab_size=151936, max_position_embeddings=40960, rope_theta=1_000_000, tie_word_embeddings=True, eos_token_id=151645, pad_token_id=151643)
PROMPT, NEW = 200, 1024
SHORT = 64  # the difference between NEW and SHORT tokens is decoding alone
# These are the same two numbers for the peer, which takes 0.1 s per token.
FEW, MANY = 16, 80
BATCHES = {4: 0.70, 32: 0.75}  # by rows, the target share of the floor
RANK = 64  # of the adapter with which a run samples
# Limits for a log-probability. Two right implementations round 36 layers and each logit to bfloat16 in different ways: over 264 tokens the
# worst difference is 0.13 to 0.145, and the usual difference is a third of that.
WORST, USUAL = 0.3, 0.1


def make_model(folder, **other):
    import torch
    from transformers import AutoModelForCausalLM, Qwen3Config
    with torch.device("cuda"):
        AutoModelForCausalLM.from_config(Qwen3Config(**{**SHAPE, **other}), dtype=torch.bfloat16).save_pretrained(folder)
    gc.collect()  # the model refers to itself, and the contenders need its 8 GB
    torch.cuda.empty_cache()


def generate(batch, new, prompt=PROMPT):
    return json.dumps({"kind": "generate", "batch": batch, "calls": 1, "prompt": prompt, "new": new})


def compare_scores(row, batch, engine, hf, answer):
    """Compares the scores that both programs give to our answer to the first prompt."""
    request = json.dumps({"kind": "score", "ids": prompt(0, PROMPT) + answer})
    scores = [each.round(request) for each in (engine, hf)]
    if not hf.lost:
        errors = [x - y for x, y in zip(*(each["logprobs"] for each in scores), strict=True)]
        row.check(f"batch {batch}: log-probabilities of our answers, worst", max(map(abs, errors), key=by_size), WORST)
        row.check(f"batch {batch}: log-probabilities of our answers, root mean square", (sum(error**2 for error in errors) / len(errors)) ** 0.5, USUAL)


def compare_speed(row, batch, engine, hf):
    few, many = (duel(engine, hf, request=generate(batch, new)) for new in (FEW, MANY))
    pairs = [[{"seconds": y["seconds"] - x["seconds"]} for x, y in zip(*figures)] for figures in zip(few, many)]
    if pairs[1]:
        ratio = Ratio(*pairs)
        row.figure(f"batch {batch}: times generate's speed", ratio, ">= 5", ratio.median >= 5)
    if not hf.lost:
        compare_scores(row, batch, engine, hf, many[0][0]["ids"][0])


def measure_steps(row, batch, target, engine, kv_token):
    (start,), (whole,) = (duel(engine, request=generate(batch, new)) for new in (SHORT, NEW))
    copy = engine.round(json.dumps({"kind": "read"}))
    bandwidth = copy["bytes"] / copy["seconds"]
    step = (median(whole) - median(start)) / (NEW - SHORT)
    floor = (engine.ready["weight_bytes"] + batch * (PROMPT + (NEW + SHORT) / 2) * kv_token) / bandwidth
    row.figure(f"batch {batch}: a token", f"{step * 1e3:.2f} ms, {batch / step:.0f} tokens/s; floor {floor * 1e3:.2f} ms at {bandwidth / 1e12:.2f} TB/s")
    row.figure(f"batch {batch}: share of the floor", f"{floor / step:.2f}", f">= {target:g}", floor / step >= target)


def measure_tokens(row, what, engine):
    for batch in BATCHES:
        start, whole = ([engine.round(generate(batch, new)) for _ in range(2)][1]["seconds"] for new in (SHORT, NEW))
        step = (whole - start) / (NEW - SHORT)
        row.figure(f"batch {batch}: a token {what}", f"{step * 1e3:.2f} ms, {batch / step:.0f} tokens/s")


def measure_adapter(row, engine):
    """Measures our engine as a run decodes, with an adapter in its own columns of the packed weights. The columns stay, so this engine
    gives no other figures."""
    engine.round(json.dumps({"kind": "adapter", "rank": RANK}))
    measure_tokens(row, f"with an adapter of rank {RANK}", engine)


def compare_products(row):
    """Measures the products of a step by themselves, with our kernel, its second form (bulk_product.h) and LibTorch's kernel: the adapter's
    columns hardly change their shapes."""
    with Contender("products", [BIN / "dapd_gpu_kernels_benchmark", "products"]) as products:
        for batch in BATCHES:
            rounds = [json.dumps({"rows": batch, "by": by}) for by in ("ours", "bulk", "library")]
            products.round(rounds[-1])
            kinds = zip(*[[products.round(each) for each in rounds] for _ in range(3)])
            rates = [figures[0]["bytes"] / median(figures) / 1e12 for figures in kinds]
            row.figure(f"batch {batch}: products of a step by themselves",
                       f"{rates[0]:.2f} TB/s of weights, in the bulk form {rates[1]:.2f}, LibTorch's {rates[2]:.2f}")


def measure_attention(row):
    """Measures the attention of a step by itself; its floor is reading the keys and values."""
    tokens = PROMPT + NEW // 2
    with Contender("attention", [BIN / "dapd_gpu_kernels_benchmark", "attention"]) as attention:
        for batch in BATCHES:
            rounds = [attention.round(json.dumps({"rows": batch, "tokens": tokens})) for _ in range(4)][1:]
            seconds = median(rounds)
            row.figure(f"batch {batch}: attention of a step by itself, {tokens} tokens", f"{seconds * 1e3:.2f} ms, {rounds[0]['bytes'] / seconds / 1e12:.2f} TB/s")


def main():
    if not has_gpu():
        print("G2  skipped: no GPU")
        return
    row = Row("G2", f"decode on a GPU, Qwen3-4B shape, bfloat16, prompt {PROMPT}, {NEW} new tokens")
    kv_token = 2 * 2 * SHAPE["num_hidden_layers"] * SHAPE["num_key_value_heads"] * SHAPE["head_dim"]
    # Measurements without a peer come first, because a peer can take all the time.
    with row.part("products by themselves"):
        compare_products(row)
    with row.part("attention by itself"):
        measure_attention(row)
    with tempfile.TemporaryDirectory() as name:
        make_model(pathlib.Path(name))
        with row.part("under an adapter"), our_contender(name, "bfloat16", "cuda") as engine:
            measure_adapter(row, engine)
        with row.part("products in the bulk form"), our_contender(name, "bfloat16", "cuda", form=("bulk",)) as engine:
            measure_tokens(row, "with products in the bulk form", engine)
        with our_contender(name, "bfloat16", "cuda") as engine:
            for batch, target in BATCHES.items():
                measure_steps(row, batch, target, engine, kv_token)
            with hf_contender(name, "bfloat16", "cuda", kind=functools.partial(Peer, row)) as hf:
                for batch in BATCHES:
                    compare_speed(row, batch, engine, hf)

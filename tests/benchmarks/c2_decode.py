"""C2: greedy decoding at the shape of Qwen3-0.6B (random weights), our engine against Hugging Face's generate and llama.cpp.

    c2_decode.py hf MODEL PRECISION DEVICE     is the peer: answers the requests of decode_benchmark.cc

The checkpoint is bfloat16, as Qwen's; in float32 both programs compute in float32. DAPD_C2_MODEL is a folder to keep the model in;
DAPD_C2_PRECISIONS selects precisions; DAPD_C2_LLAMA=0 leaves out llama.cpp, which is built first (llama_cpp_peer.py)."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import llama_cpp_peer
from duel import BIN, PAIRS, PYTHON, ROOT, Contender, Ratio, Row, by_size, duel, median, serve

THREADS = 2
PROMPT = 64
# These are far fewer tokens than the 1,024 of a real answer, but enough that decoding, not the prompts, takes most of the time.
NEW = int(os.environ.get("DAPD_C2_NEW", "128"))
BATCHES = {1: 4.0, 8: 3.0, 32: 3.0}  # by rows, the target over generate
# The tolerance of a log-probability if both programs compute in that precision. Bfloat16 rounds every logit to 8 bits.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.15}


def prompt(row, length=PROMPT):
    """Returns the same prompt as decode_benchmark.cc."""
    return [(row * 7919 + i * 104729) % 150000 for i in range(length)]


def peer(folder, precision, device):
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(THREADS)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, precision), attn_implementation="sdpa").to(device).eval()

    @torch.inference_mode()
    def round_(line):
        request = json.loads(line)
        if request["kind"] == "score":
            ids = torch.tensor([request["ids"]], device=device)
            logprobs = model(ids).logits[0, :-1].float().log_softmax(-1)
            return {"logprobs": logprobs.gather(1, ids[0, 1:, None])[:, 0].tolist()}
        ids = torch.tensor([prompt(row, request["prompt"]) for row in range(request["batch"])], device=device)
        start = time.perf_counter()
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, temperature=None, top_p=None, top_k=None,
                             max_new_tokens=request["new"], min_new_tokens=request["new"], pad_token_id=0)
        ids = out[:, ids.shape[1]:].tolist()
        return {"seconds": time.perf_counter() - start, "ids": ids}

    serve({}, round_)


def make_model(folder):
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "config.json").exists():
        subprocess.run([PYTHON, ROOT / "tests/benchmarks/make_qwen3_0_6b.py", folder], check=True)
    return folder


def our_contender(folder, precision, device="cpu", slots=max(BATCHES), form=()):
    return Contender("dapd", [BIN / "dapd_decode_benchmark", folder, precision, device, slots, *form], OMP_NUM_THREADS=THREADS)


def hf_contender(folder, precision, device="cpu", kind=Contender):
    """Makes the peer by kind(name, command, ...)."""
    return kind("hf", [PYTHON, __file__, "hf", folder, precision, device], OMP_NUM_THREADS=THREADS)


def llama_contender(folder, precision):
    """Makes llama.cpp on the same weights, or no contender."""
    if os.environ.get("DAPD_C2_LLAMA", "1") == "0":
        return None
    python = llama_cpp_peer.build()
    gguf = llama_cpp_peer.write_gguf(folder, folder / f"{precision}.gguf", precision)
    return Contender("llama.cpp", [python, llama_cpp_peer.__file__, gguf, precision, THREADS])


def check(row, precision, engine, hf, others):
    """Scores the texts that Hugging Face's generate chose with all contenders."""
    request = {"kind": "generate", "batch": 2, "calls": 1, "prompt": PROMPT, "new": NEW}
    theirs, mine = (each.round(json.dumps(request))["ids"] for each in (hf, engine))
    worst = [0.0] * (1 + len(others))
    for i, answer in enumerate(theirs):
        score = json.dumps({"kind": "score", "ids": prompt(i) + answer})
        expected = hf.round(score)["logprobs"]
        for j, each in enumerate((engine, *others)):
            worst[j] = max(worst[j], *(abs(x - y) for x, y in zip(each.round(score)["logprobs"], expected, strict=True)), key=by_size)
    for error, each in zip(worst, (engine, *others)):
        row.check(f"{precision}: log-probabilities of generate's answers, {each.name}", error, TOLERANCE[precision])
    equal = sum(x == y for a, b in zip(mine, theirs) for x, y in zip(a, b))
    if precision == "float32":
        row.check("float32: greedy tokens that differ", len(theirs) * NEW - equal, 0)
    else:
        row.figure("bfloat16: greedy tokens that are equal", f"{equal} of {len(theirs) * NEW}")


def bandwidth(engine):
    """Returns the bytes a second of reading memory on as many threads: the best of several rounds is the machine's limit."""
    rounds = [engine.round(json.dumps({"kind": "read"})) for _ in range(2 * PAIRS)]
    return max(figure["bytes"] / figure["seconds"] for figure in rounds)


def measure(folder, precision):
    row = Row("C2", f"decode, Qwen3-0.6B shape, {precision}, prompt {PROMPT}, {NEW} new tokens, {THREADS} threads")
    engine, hf = our_contender(folder, precision), hf_contender(folder, precision)
    llama = llama_contender(folder, precision)
    others = [] if llama is None else [llama]
    with contextlib.ExitStack() as stack:
        for each in (engine, hf, *others):
            stack.enter_context(each)
        check(row, precision, engine, hf, others)
        weights = engine.ready["weight_bytes"]
        row.figure("weights read a step", f"{weights / 1e9:.2f} GB")
        for batch, target in BATCHES.items():
            request = json.dumps({"kind": "generate", "batch": batch, "calls": 1, "prompt": PROMPT, "new": NEW})
            read = bandwidth(engine)
            a, b, *c = duel(engine, hf, *others, request=request)
            read = max(read, bandwidth(engine))
            ratio = Ratio(a, b)
            tokens = batch * NEW
            row.figure(f"batch {batch}: tokens/s, ours and generate", f"{tokens / median(a):.1f} and {tokens / median(b):.1f}")
            row.figure(f"batch {batch}: times generate's speed", ratio, f">= {target:g}", ratio.median >= target)
            for figures in c:
                ratio = Ratio(a, figures)
                row.figure(f"batch {batch}: times llama.cpp's speed", f"{ratio}; it has {tokens / median(figures):.1f} tokens/s", ">= 1", ratio.median >= 1)
            rate = weights / median(a, "step_seconds")
            work = f"{1000 * median(a, 'step_seconds'):.1f} ms a step, {rate / 1e9:.1f} GB/s of weights and {rate * batch / 1e9:.0f} GFLOP/s"
            if batch == 1:
                row.figure(f"batch 1: share of the read bandwidth of {read / 1e9:.1f} GB/s", f"{rate / read:.2f} ({work})", ">= 0.70", rate / read >= 0.7)
            else:
                row.figure(f"batch {batch}", f"{work}, beside {read / 1e9:.1f} GB/s of reading")
        row.figure(f"peak memory, {', '.join(each.name for each in (engine, hf, *others))}", ", ".join(f"{each.peak_mib():.0f}" for each in (engine, hf, *others)) + " MiB")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = make_model(pathlib.Path(os.environ.get("DAPD_C2_MODEL", name)))
        for precision in os.environ.get("DAPD_C2_PRECISIONS", "float32 bfloat16").split():
            measure(folder, precision)


if __name__ == "__main__" and sys.argv[1:2] == ["hf"]:
    peer(*sys.argv[2:5])

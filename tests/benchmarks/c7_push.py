"""C7: an adapter of 264 MB is sent to two rollout workers; measured from the optimizer's tensors to each worker's first token with it.

The workers are dapd-rollout as in a run. The model is wide and shallow, so that its own forward passes (a probe and a token per worker)
take little time beside the adapter. DAPD_C7_RANK (732): the adapter has 360 kB per rank.
"""

import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

from duel import BIN, ROOT, Contender, Ratio, Row, duel, median

sys.path.insert(0, str(ROOT / "deploy"))
import make_tiny_model as model  # noqa: E402

RANK = int(os.environ.get("DAPD_C7_RANK", "732"))
WORKERS = 2


def write_model(folder):
    model.LAYERS, model.HIDDEN, model.INTERMEDIATE, model.HEADS, model.KV_HEADS, model.HEAD_DIM = 4, 1024, 3072, 16, 8, 128
    model.write_model_folder(folder, model.make_documents(), model.make_weights(np.random.default_rng(1)))


@contextlib.contextmanager
def rollout_worker(folder, number):
    """Runs dapd-rollout and yields its address."""
    port_file = folder / f"port{number}"
    settings = {"model.path": folder / "model", "model.precision": "float32", "lora.rank": RANK, "rollout.slots": 1,
                "run.num_threads": 1, "metrics.rollout_listen": '""', "evaluation.path": '""'}
    process = subprocess.Popen(
        [BIN / "dapd-rollout", ROOT / "configs/tiny.yaml", "--listen", "127.0.0.1:0", "--port-file", port_file,
         *(part for key, value in settings.items() for part in ("--set", f"{key}={value}"))], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        while not port_file.exists():
            if process.poll() is not None:
                sys.exit(f"dapd-rollout ended: {process.stderr.read()}")
            time.sleep(0.05)
        yield f"127.0.0.1:{port_file.read_text().strip()}"
    finally:
        process.terminate()
        process.wait()


def main():
    row = Row("C7", "an adapter to two rollout workers until the first token under it")
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write_model(folder / "model")
        addresses = [stack.enter_context(rollout_worker(folder, number)) for number in range(WORKERS)]
        trainer = stack.enter_context(Contender(
            "trainer", [BIN / "dapd_push_benchmark", folder / "model", RANK, *addresses], OMP_NUM_THREADS=1))
        checked = trainer.round("check")
        row.check("tokens and workers under another digest than that of the whole adapter", checked["wrong"], 0)
        size = trainer.ready["bytes"]
        sinks = [stack.enter_context(Contender(f"sink {n}", [BIN / "dapd_raw_transfer_benchmark", "sink"])) for n in range(WORKERS)]
        raw = stack.enter_context(Contender("raw TCP", [
            BIN / "dapd_raw_transfer_benchmark", "push", size, *(sink.ready["port"] for sink in sinks)]))
        ours, plain = duel(trainer, raw)
    row.check("tokens and workers under another digest, all rounds", sum(figures["wrong"] for figures in ours), 0)
    row.figure("adapter", f"{size / 1e6:.0f} MB, float32, rank {RANK}")
    row.figure("raw TCP and a copy", f"{1000 * median(plain):.0f} ms ({WORKERS * size / 1e9 / median(plain):.2f} GB/s)")
    row.figure("ours until packed, hashed and probed", f"{1000 * median(ours, 'packed_seconds'):.0f} ms")
    left = statistics.median(1.8 * b["seconds"] + 0.05 - a["seconds"] for a, b in zip(ours, plain))
    row.figure("ours until both first tokens", f"{1000 * median(ours):.0f} ms", "<= 1.8x raw TCP + 50 ms", left >= 0)
    row.figure("ours / raw TCP", Ratio(plain, ours))
    row.figure("CPU time of the trainer", f"{median(ours, 'cpu_seconds'):.2f} s")
    digest = trainer.ready["digest_seconds"]
    needed = (WORKERS + 1) * digest + os.cpu_count() * median(plain)
    row.figure("bound", f"{WORKERS + 1} XXH3 passes of {1000 * digest:.0f} ms each and the copies of raw TCP, spread over {os.cpu_count()} cores: "
                        f"{1000 * needed / os.cpu_count():.0f} ms")

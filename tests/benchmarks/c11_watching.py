"""C11: steps of a run that is watched closely, against the same steps unwatched.

The watched run has a log as JSON and a timeline of every step, for which all services keep and send their slices. The unwatched run has a
log as text and no timeline. Steps are small, so the costs of a step and of a slice weigh more than in any real run. The order changes from
pair to pair, and the first step of each run, which warms up, does not count.
"""

import hashlib
import json
import pathlib
import sys
import tempfile

import our_run
from duel import PAIRS, ROOT, Ratio, Row, median

sys.path.insert(0, str(ROOT / "tests/oracle"))
import models  # noqa: E402

STEPS, BATCH, TOKENS = 21, 8, 64
SIZES = dict(hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=64, initializer_range=0.05,
             max_position_embeddings=4096)
WATCHED = {"log.format": "json", "trainer.timeline_steps": STEPS}
UNWATCHED = {"log.format": "text", "trainer.timeline_steps": 0}


def run(folder, name, **more):
    """Runs once; returns the seconds of all steps but the first, the numbers of slices and of log lines, and a digest of the adapter."""
    steps = our_run.run(folder, name, **{
        "run.num_threads": 1, "rollout.max_new_tokens": TOKENS, "rollout.slots": BATCH, "trainer.batch_size": BATCH, "trainer.micro_batch_size": 2,
        "trainer.steps": STEPS, "trainer.schedule_steps": STEPS, "trainer.learning_rate": 1e-3, **more})
    timeline = folder / "runs" / name / "timeline.json"
    lines = (folder / f"{name}.log").read_text().splitlines()
    return {"seconds": sum(sum(step["seconds"].values()) for step in steps[1:]),
            "slices": sum(event["ph"] == "X" for event in json.loads(timeline.read_text())["traceEvents"]) if timeline.is_file() else 0,
            "objects": sum(line.startswith("{") for line in lines), "lines": len(lines),
            "adapter": hashlib.sha256((folder / "runs" / name / "adapter/adapter_model.safetensors").read_bytes()).hexdigest()}


def main():
    row = Row("C11", f"{STEPS - 1} steps of {BATCH} answers of up to {TOKENS} tokens, Qwen3 of {SIZES['num_hidden_layers']} layers and hidden "
                     f"{SIZES['hidden_size']}: with JSON logs and a timeline of every step, and without")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        models.make_model(folder / "model", "qwen3", **SIZES)
        our_run.prepare(folder)
        watched, unwatched = [], []
        for i in range(PAIRS):
            both = [(watched, f"watched-{i}", WATCHED), (unwatched, f"unwatched-{i}", UNWATCHED)]
            for figures, run_name, settings in both if i % 2 == 0 else reversed(both):
                figures.append(run(folder, run_name, **settings))
        row.check("adapters that differ", sum(figures["adapter"] != watched[0]["adapter"] for figures in watched + unwatched), 0)
        row.check("unwatched runs with a timeline", sum(figures["slices"] > 0 for figures in unwatched), 0)
        row.check("watched runs without a timeline", sum(figures["slices"] == 0 for figures in watched), 0)
        row.check("watched runs without JSON in their log", sum(figures["objects"] == 0 for figures in watched), 0)
        row.figure("seconds, watched", f"{median(watched):.2f}")
        row.figure("seconds, unwatched", f"{median(unwatched):.2f}")
        row.figure("slices a step", f"{median(watched, 'slices') / STEPS:.0f}")
        overhead = Ratio(unwatched, watched)
        row.figure("watched / unwatched", overhead, "< 1.02", overhead.median < 1.02)

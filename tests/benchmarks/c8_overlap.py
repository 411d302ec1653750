"""C8: steps with teachers that compute behind the sampler, against the same steps with teachers that wait for whole answers.

Each token of a decode step takes a while longer than on this machine, as if a GPU sampled (a failpoint sleeps), so that the
teacher has a processor to itself while answers are sampled, as it has in a run of three machines.
"""

import hashlib
import pathlib
import statistics
import sys
import tempfile

import our_run
from duel import PAIRS, ROOT, Ratio, Row, median

sys.path.insert(0, str(ROOT / "tests/oracle"))
import models  # noqa: E402

STEPS, BATCH, TOKENS, MILLISECONDS_A_TOKEN = 3, 4, 320, 25
SIZES = dict(hidden_size=384, intermediate_size=1152, num_hidden_layers=6, num_attention_heads=6, num_key_value_heads=3, head_dim=64, initializer_range=0.05,
             max_position_embeddings=4096)


def run(folder, name, **more):
    """One run: seconds of its steps, how many of them the teachers computed and when, and what it ended in."""
    steps = our_run.run(folder, name, failpoints=f"worker.before_token=sleep:{MILLISECONDS_A_TOKEN}", **{
        "run.num_threads": 1, "rollout.max_new_tokens": TOKENS, "rollout.temperature": 0, "rollout.slots": BATCH, "teacher.snapshot_interval": 1,
        "trainer.batch_size": BATCH, "trainer.micro_batch_size": BATCH, "trainer.recompute": "false", "trainer.steps": STEPS, "trainer.schedule_steps": STEPS,
        "trainer.learning_rate": 1e-3, **more})
    # The first step's snapshot is the base: half the teachers' work of the others.
    steps = steps[1:]
    phases = {phase: sum(step["seconds"][phase] for step in steps) for phase in steps[0]["seconds"]}
    return {"seconds": sum(phases.values()), "phases": phases, "after": sum(step["teacher_seconds"] for step in steps),
            "ahead": sum(step["teacher_ahead_seconds"] for step in steps), "losses": [step["loss"] for step in steps],
            "adapter": hashlib.sha256((folder / "runs" / name / "adapter/adapter_model.safetensors").read_bytes()).hexdigest()}


def phases(figures):
    return ", ".join(f"{phase} {statistics.median(f['phases'][phase] for f in figures):.2f}" for phase in ("rollout", "score", "train"))


def main():
    row = Row("C8", f"steps of {BATCH} answers of up to {TOKENS} tokens, {MILLISECONDS_A_TOKEN} ms a token more, Qwen3 of {SIZES['num_hidden_layers']} layers and hidden "
                    f"{SIZES['hidden_size']}: teachers behind the sampler and after it")
    on, off = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        models.make_model(folder / "model", "qwen3", **SIZES)
        our_run.prepare(folder)
        for i in range(PAIRS):
            on.append(run(folder, f"on-{i}", **{"teacher.streaming": "true"}))
            off.append(run(folder, f"off-{i}", **{"teacher.streaming": "false"}))
            row.check(f"pair {i + 1}: adapters and losses that differ", sum(on[i][key] != off[0][key] for key in ("adapter", "losses"))
                      + sum(off[i][key] != off[0][key] for key in ("adapter", "losses")), 0)
    row.figure("seconds, streamed", f"{median(on):.2f} ({phases(on)})")
    row.figure("seconds, whole", f"{median(off):.2f} ({phases(off)})")
    left = statistics.median(figures["after"] / (figures["after"] + figures["ahead"]) for figures in on)
    row.figure("teacher work left after the last token", f"{100 * left:.0f} % of {median(on, 'after') + median(on, 'ahead'):.2f} s")
    speed = Ratio(on, off)
    row.figure("whole / streamed", speed, ">= 1.3", speed.median >= 1.3)

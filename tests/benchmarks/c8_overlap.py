"""C8: steps whose phases overlap, against the same steps one phase after the other.

If phases overlap, teachers compute while answers are sampled; the trainer takes each micro-batch as soon as it is scored and runs forward
over what is known before. Otherwise all wait for the last answer. A failpoint sleeps in each decode step, as if a GPU sampled, so that
teacher and trainer have the processors to themselves while answers are sampled, as on three machines. The row runs twice: the worker has
slots for a part of the batch, so that answers end one after the other as answers of different lengths do; and it has slots for the whole
batch, so that no answer ends before the last.

The possible gain depends on the time of sampling beside the rest: if phases take r, s and t, no schedule takes less than the longest of
them; this limit is printed beside each ratio. The sleep has to stay long: if sampling is as fast as scoring and training, three processes
want more than two cores, and the row would measure the cores.
"""

import hashlib
import json
import pathlib
import statistics
import sys
import tempfile

import our_run
from duel import PAIRS, ROOT, Ratio, Row, median

sys.path.insert(0, str(ROOT / "tests/oracle"))
import models  # noqa: E402

STEPS, BATCH, TOKENS, MILLISECONDS_A_TOKEN = 3, 12, 160, 12
SIZES = dict(hidden_size=384, intermediate_size=1152, num_hidden_layers=6, num_attention_heads=6, num_key_value_heads=3, head_dim=64, initializer_range=0.05,
             max_position_embeddings=4096)


def run(folder, name, **more):
    """Runs once; returns the seconds of its steps and phases, the teachers' times, and a digest of the adapter."""
    steps = our_run.run(folder, name, failpoints=f"worker.before_token=sleep:{MILLISECONDS_A_TOKEN}", **{
        "run.num_threads": 1, "rollout.max_new_tokens": TOKENS, "rollout.temperature": 0, "teacher.snapshot_interval": 1,
        "trainer.batch_size": BATCH, "trainer.micro_batch_size": 2, "trainer.activation_memory_mib": 8192, "trainer.steps": STEPS, "trainer.schedule_steps": STEPS,
        "trainer.learning_rate": 1e-3, **more})
    # In the first step the snapshot is the base, which halves the teachers' work.
    steps = steps[1:]
    phases = {phase: sum(step["seconds"][phase] for step in steps) for phase in steps[0]["seconds"]}
    return {"seconds": sum(phases.values()), "phases": phases, "after": sum(step["teacher_seconds"] for step in steps),
            "ahead": sum(step["teacher_ahead_seconds"] for step in steps), "losses": [step["loss"] for step in steps],
            "early": sum(step["early_micro_batches"] for step in steps),
            "forward": sum(step["forward_ahead_tokens"] for step in steps),
            "adapter": hashlib.sha256((folder / "runs" / name / "adapter/adapter_model.safetensors").read_bytes()).hexdigest()}


def phase(figures, name):
    """Returns the median seconds of a phase."""
    return statistics.median(f["phases"][name] for f in figures)


def phases(figures):
    return ", ".join(f"{name} {phase(figures, name):.2f}" for name in ("rollout", "score", "train"))


def compare(row, folder, what, slots, target):
    """Compares pairs of runs with `slots` slots."""
    on, off = [], []
    for i in range(PAIRS):
        on.append(run(folder, f"on-{slots}-{i}", **{"rollout.slots": slots, "teacher.streaming": "true", "trainer.train_while_sampling": "true"}))
        off.append(run(folder, f"off-{slots}-{i}", **{"rollout.slots": slots, "teacher.streaming": "false", "trainer.train_while_sampling": "false"}))
        row.check(f"{what}, pair {i + 1}: adapters and losses that differ", sum(on[i][key] != off[0][key] for key in ("adapter", "losses"))
                  + sum(off[i][key] != off[0][key] for key in ("adapter", "losses")), 0)
    row.figure(f"{what}: seconds, overlapped", f"{median(on):.2f} ({phases(on)})")
    row.figure(f"{what}: seconds, one after the other", f"{median(off):.2f} ({phases(off)})")
    left = statistics.median(figures["after"] / (figures["after"] + figures["ahead"]) for figures in on)
    row.figure(f"{what}: teacher work left after the last token", f"{100 * left:.0f} % of {median(on, 'after') + median(on, 'ahead'):.2f} s")
    row.figure(f"{what}: micro-batches trained before the last answer", f"{median(on, 'early'):.0f} of {(STEPS - 1) * BATCH // 2}")
    row.figure(f"{what}: tokens that passed forward before their scores", f"{median(on, 'forward'):.0f}")
    lasting = [phase(off, name) for name in ("rollout", "score", "train")]
    row.figure(f"{what}: the most that any schedule gives, all phases over the longest", f"{sum(lasting) / max(lasting):.2f}")
    speed = Ratio(on, off)
    row.figure(f"{what}: one after the other / overlapped", speed, target and f">= {target}", target and speed.median >= target)


def main():
    row = Row("C8", f"steps of {BATCH} answers of {TOKENS} tokens, {MILLISECONDS_A_TOKEN} ms a token more, Qwen3 of {SIZES['num_hidden_layers']} layers and hidden "
                    f"{SIZES['hidden_size']}: phases overlapped and one after the other")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        models.make_model(folder / "model", "qwen3", **SIZES)
        # A random model would end its answers early, at a token that a change of its weights decides; this id has no token.
        (folder / "model/generation_config.json").write_text(json.dumps({"eos_token_id": models.VOCABULARY - 1}))
        our_run.prepare(folder)
        compare(row, folder, "2 at a time", 2, 1.4)
        compare(row, folder, "side by side", BATCH, None)

"""C9: twenty DAPD steps, our processes on loopback against the official step in one PyTorch process."""

import json
import os
import pathlib
import sys
import tempfile

import our_run
from duel import PAIRS, PYTHON, ROOT, Contender, MemoryWatch, Ratio, Row, by_size, median
from shared_cores import SharedCores

sys.path.insert(0, str(ROOT / "tests/oracle"))
import models  # noqa: E402

STEPS, BATCH = 20, 4
# In the second pairs, other processes take this share of every core.
STOLEN = 0.15
SETTINGS = {"objective_temperature": 1.1, "temperature": 1.1, "top_p": 0.95, "top_k": 20, "max_new_tokens": 48, "max_reference_tokens": 96,
            "clip": 0.05, "learning_rate": 1e-3, "schedule_steps": STEPS, "max_grad_norm": 0.1, "micro_batch_size": 2, "snapshot_interval": 10}
SIZES = dict(hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, head_dim=32, initializer_range=0.05)


def descendants(pid):
    """Returns `pid` and the processes that it started, directly or indirectly."""
    found = [pid]
    for parent in found:
        try:
            children = pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        except OSError:
            continue
        found.extend(map(int, children))
    return found


def run(folder, name, pids=None, **more):
    """Runs once; returns the seconds of its steps and the losses. The list `pids` gets the first process."""
    process = our_run.start(folder, name, **{
        "objective.max_reference_tokens": SETTINGS["max_reference_tokens"], "rollout.max_new_tokens": SETTINGS["max_new_tokens"], "rollout.slots": BATCH,
        "teacher.snapshot_interval": SETTINGS["snapshot_interval"], "trainer.batch_size": BATCH, "trainer.micro_batch_size": SETTINGS["micro_batch_size"],
        "trainer.steps": STEPS, "trainer.schedule_steps": STEPS, "trainer.learning_rate": SETTINGS["learning_rate"], **more})
    if pids is not None:
        pids.append(process.pid)
    before = os.times()
    steps = our_run.finish(process, folder, name)
    # All child processes that ended in between belong to this run.
    after = os.times()
    return {"seconds": sum(sum(step["seconds"].values()) for step in steps), "losses": [step["loss"] for step in steps],
            "generated_tokens": sum(step["generated_tokens"] for step in steps),
            "user_seconds": after.children_user - before.children_user, "system_seconds": after.children_system - before.children_system}


def recorded(folder, name):
    """Returns the samples that a run trained on, step by step."""
    paths = sorted((folder / "runs" / name / "samples").glob("step-*.jsonl"))
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]


def main():
    row = Row("C9", f"{STEPS} steps of {BATCH} problems, Qwen3 of {SIZES['num_hidden_layers']} layers and hidden {SIZES['hidden_size']}, against the official step in PyTorch")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        models.make_model(folder / "model", "qwen3", **SIZES)
        our_run.prepare(folder)
        # A step without a learning rate saves the adapter that a run starts with.
        run(folder, "start", **{"trainer.steps": 1, "trainer.learning_rate": 1e-30})
        # Reading the memory of several processes takes a tenth of a core, so it is read only in rounds without timing.
        pids = []
        with MemoryWatch(lambda: [pid for first in pids for pid in descendants(first)]) as memory_ours:
            checked_ours = run(folder, "ours-0", pids)
        settings = {**SETTINGS, "steps": recorded(folder, "ours-0")}
        (folder / "official.json").write_text(json.dumps(settings))
        command = [PYTHON, ROOT / "tests/benchmarks/official_step.py", folder / "model", folder / "runs/start/adapter", folder / "official.json"]
        with Contender("the official step", command) as official:
            with MemoryWatch(lambda: [official.process.pid]) as memory_theirs:
                checked_theirs = official.round()
            worst = max((abs(a - b) / abs(b) for a, b in zip(checked_ours["losses"], checked_theirs["losses"])), key=by_size)
            row.check("largest relative difference of a step's loss", worst, 1e-3)
            ours, theirs, loaded_ours, loaded_theirs = [], [], [], []
            for i in range(PAIRS):
                ours.append(run(folder, f"ours-{i + 1}"))
                theirs.append(official.round())
            with SharedCores(STOLEN):
                for i in range(max(1, PAIRS // 2)):
                    loaded_ours.append(run(folder, f"loaded-{i + 1}"))
                    loaded_theirs.append(official.round())
    changed = sum(a["losses"] != ours[0]["losses"] for a in loaded_ours)
    row.check("runs under load with other losses", changed, 0)
    speed, peak, peak_theirs = Ratio(ours, theirs), memory_ours.peak, memory_theirs.peak
    row.figure("ours", f"{STEPS / median(ours):.2f} steps/s, {ours[0]['generated_tokens']} tokens sampled, {peak:.0f} MiB in all processes")
    row.figure("official", f"{STEPS / median(theirs):.2f} steps/s, {theirs[0]['generated_tokens']} tokens sampled, {peak_theirs:.0f} MiB")
    row.figure("steps/s ours / official", speed, ">= 4.5", speed.median >= 4.5)
    loaded = Ratio(loaded_ours, loaded_theirs)
    row.figure(f"the same while others take {100 * STOLEN:.0f} % of every core", loaded, ">= 4", loaded.median >= 4)
    row.figure("slower by that, ours and official", f"{median(loaded_ours) / median(ours):.2f} and {median(loaded_theirs) / median(theirs):.2f}")
    row.figure("CPU seconds of a run of ours, in programs and in the kernel, alone and beside others",
               "; ".join(f"{median(runs, 'user_seconds'):.1f} and {median(runs, 'system_seconds'):.1f}" for runs in (ours, loaded_ours)))
    row.figure("peak memory ours / official", f"{peak / peak_theirs:.2f}", "<= 0.5", peak <= 0.5 * peak_theirs)

"""G8: whole steps of 32 problems with Qwen3-1.7B's shape on one GPU with all three services, against the official step in PyTorch.

A step of the peer takes a quarter of an hour, because it samples two answers at a time. If the row's time is limited (deadline.DEADLINE),
the peer trains on all micro-batches but samples only for the first ones; the others are charged the mean time of these. DAPD_G8_MODEL is a
folder to keep the model in."""

import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch

import our_run
from deadline import DEADLINE
from duel import PAIRS, PYTHON, ROOT, Peer, Ratio, Row, another_fits, median, serve

sys.path.insert(0, str(ROOT / "tests/oracle"))
import make_qwen3_0_6b as model_maker  # noqa: E402
from official_step import OfficialTrainer  # noqa: E402

# The first step of a run includes work that is done once.
WARM_STEPS, BATCH, SEED = 1, 32, 42
SETTINGS = {"objective_temperature": 1.1, "temperature": 1.1, "top_p": 0.95, "top_k": 20, "max_new_tokens": 1024, "max_reference_tokens": 1024,
            "clip": 0.05, "learning_rate": 5e-6, "schedule_steps": 500, "max_grad_norm": 0.1, "micro_batch_size": 2, "snapshot_interval": 100}


class GpuTrainer(OfficialTrainer):
    """The official step on the GPU, in bfloat16 except the optimizer, whose copy of the adapter is float32: its authors run it this way,
    and our trainer multiplies this way."""

    def __init__(self, model, adapter, settings, device="cuda"):
        super().__init__(model, adapter, settings)
        self.model.to(device)
        self.rounded, self.parameters = self.parameters, [parameter.detach().clone() for parameter in self.parameters]
        self.optimizer = self.make_optimizer()
        for parameter in self.model.parameters():
            parameter.data = parameter.data.to(torch.bfloat16)

    def update(self):
        for parameter, rounded in zip(self.parameters, self.rounded):
            parameter.grad, rounded.grad = rounded.grad.float(), None
        super().update()
        with torch.no_grad():
            for parameter, rounded in zip(self.parameters, self.rounded):
                rounded.copy_(parameter)

    def step(self, rows):
        """Runs the official step; returns also the seconds that it would have taken in addition."""
        self.sampled, self.charged = [], 0
        self.sample_until = time.time() + (DEADLINE - time.time()) / 2
        loss, tokens = super().step(rows)
        return loss, tokens, self.charged * statistics.mean(seconds for seconds, _ in self.sampled)

    def generate(self, problems):
        if self.sampled and time.time() + self.sampled[-1][0] > self.sample_until:
            self.charged += 1
            return statistics.mean(tokens for _, tokens in self.sampled)
        start = time.time()
        tokens = super().generate(problems)
        torch.cuda.synchronize()
        self.sampled.append((time.time() - start, tokens))
        return tokens


def peer(model, adapter, path):
    settings = json.loads(pathlib.Path(path).read_text())
    trainer = GpuTrainer(model, adapter, settings)

    def round_(_):
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss, tokens, charged = trainer.step(settings["steps"][0])
        torch.cuda.synchronize()
        return {"seconds": time.perf_counter() - start + charged, "loss": loss, "generated_tokens": tokens, "sampled": len(trainer.sampled)}

    serve({}, round_)


def write_model(folder):
    """Writes a model of Qwen3-1.7B's shape, which is twice as wide as Qwen3-0.6B's shape. A folder that has the model stays as it is."""
    if (folder / "config.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    model_maker.HIDDEN, model_maker.FFN = 2048, 6144
    arguments, sys.argv = sys.argv, ["make", str(folder)]
    model_maker.main()
    sys.argv = arguments


def run(folder, model, name, steps):
    """Runs our services once; returns the seconds of each step, and the losses."""
    lines = our_run.run(folder, name, **{
        "run.seed": SEED, "model.path": model, "model.precision": "bfloat16", "model.device": "cuda", "lora.rank": 64, "lora.alpha": 128,
        "objective.max_reference_tokens": SETTINGS["max_reference_tokens"], "rollout.max_new_tokens": SETTINGS["max_new_tokens"], "rollout.slots": BATCH,
        "teacher.snapshot_interval": SETTINGS["snapshot_interval"], "trainer.batch_size": BATCH, "trainer.micro_batch_size": SETTINGS["micro_batch_size"],
        "trainer.steps": steps, "trainer.schedule_steps": SETTINGS["schedule_steps"], "trainer.learning_rate": SETTINGS["learning_rate"]})
    return [{"seconds": sum(line["seconds"].values()), "loss": line["loss"], "generated_tokens": line["generated_tokens"]} for line in lines]


def official(row, model, adapter, settings):
    """Runs steps of the peer: a first step that does not count, and PAIRS more as far as time allows, but at least one unless the peer is lost."""
    rounds = []
    # Nothing follows the peer, and its first step is made to take most of the time.
    with Peer(row, "the official step", [PYTHON, __file__, model, adapter, settings], share=1) as contender:
        while len(rounds) <= PAIRS:
            start = time.time()
            if (figure := contender.round()) is None:
                break
            rounds.append(figure)
            if not another_fits(start):
                break
    return rounds


def report(row, name, figures):
    row.figure(name, f"{median(figures):.1f} s/step, {median(figures, 'generated_tokens'):.0f} tokens sampled a step")


def main():
    if not torch.cuda.is_available():
        print("G8  skipped: no GPU")
        return
    row = Row("G8", f"whole steps of {BATCH} problems, Qwen3-1.7B's shape, one GPU for all services, against the official step in PyTorch")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = pathlib.Path(os.environ.get("DAPD_G8_MODEL", folder / "model"))
        write_model(model)
        our_run.prepare(folder)
        steps = run(folder, model, "ours", WARM_STEPS + PAIRS)
        ours = steps[WARM_STEPS:]
        # Our figures come before the peer begins, which may need all the time left.
        report(row, "ours", ours)
        row.figure("seconds a step", f"{median(ours):.1f}", "<= 14", median(ours) <= 14)
        samples = sorted((folder / "runs/ours/samples").glob("step-*.jsonl"))[0]
        rows = [json.loads(line) for line in samples.read_text().splitlines()]
        (folder / "official.json").write_text(json.dumps({**SETTINGS, "steps": [rows]}))
        our_run.dapd("adapter", "init", "--model", model, "--output", folder / "start", "--rank", 64, "--alpha", 128, "--seed", SEED)
        theirs = official(row, model, folder / "start", folder / "official.json")
    if theirs:
        compare(row, steps[0]["loss"], ours, theirs)


def compare(row, first_loss, ours, theirs):
    row.check("relative difference of the first step's loss", abs(first_loss / theirs[0]["loss"] - 1), 5e-2)
    theirs = theirs[1:] or theirs
    report(row, "official", theirs)
    row.figure("micro-batches that the official step sampled for", f"{theirs[0]['sampled']} of {BATCH // SETTINGS['micro_batch_size']}")
    faster = Ratio(ours, theirs)
    row.figure("times faster than the official", faster, ">= 4", faster.median >= 4)


if __name__ == "__main__":
    peer(*sys.argv[1:])

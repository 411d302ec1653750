"""G8: whole steps of 32 problems with Qwen3-1.7B's shape on one GPU, all three services on it, against the official step in PyTorch."""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

import torch

from duel import BIN, PAIRS, PYTHON, ROOT, Contender, Ratio, Row, median, serve

sys.path.insert(0, str(ROOT / "tests/oracle"))
import make_qwen3_0_6b as model_maker  # noqa: E402
from official_step import OfficialTrainer  # noqa: E402

# The first step of a run pays for what is made once.
WARM_STEPS, BATCH = 1, 32
SETTINGS = {"objective_temperature": 1.1, "temperature": 1.1, "top_p": 0.95, "top_k": 20, "max_new_tokens": 1024, "max_reference_tokens": 1024,
            "clip": 0.05, "learning_rate": 5e-6, "schedule_steps": 500, "max_grad_norm": 0.1, "micro_batch_size": 2, "snapshot_interval": 100}


class GpuTrainer(OfficialTrainer):
    """The official step with its model in bfloat16 on the GPU; the adapters stay float32."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        torch.set_default_device("cuda")
        self.model.to("cuda")
        for name, parameter in self.model.named_parameters():
            if "lora_" not in name:
                parameter.data = parameter.data.to(torch.bfloat16)
        tokenize = self.tokenizer

        class OnGpu:
            def __call__(self, *texts, **options):
                return tokenize(*texts, **options).to("cuda")

            def __getattr__(self, name):
                return getattr(tokenize, name)

        self.tokenizer = OnGpu()


def peer(model, adapter, path):
    settings = json.loads(pathlib.Path(path).read_text())
    trainer = GpuTrainer(model, adapter, settings)

    def round_(_):
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss, tokens = trainer.step(settings["steps"][0])
        torch.cuda.synchronize()
        return {"seconds": time.perf_counter() - start, "loss": loss, "generated_tokens": tokens}

    serve({}, round_)


def write_model(folder):
    """Qwen3-1.7B's shape: that of 0.6B, twice as wide."""
    folder.mkdir()
    model_maker.HIDDEN, model_maker.FFN = 2048, 6144
    arguments, sys.argv = sys.argv, ["make", str(folder)]
    model_maker.main()
    sys.argv = arguments


def run(folder, name, steps, **more):
    """One run of ours; seconds of each step, and the losses."""
    sets = {"run.name": name, "run.output_dir": folder / "runs", "run.rollout_workers": 1, "model.path": folder / "model", "model.precision": "bfloat16",
            "model.device": "cuda", "lora.rank": 64, "lora.alpha": 128, "data.path": folder / "train.jsonl", "evaluation.path": '""',
            "objective.max_reference_tokens": SETTINGS["max_reference_tokens"], "rollout.max_new_tokens": SETTINGS["max_new_tokens"], "rollout.slots": BATCH,
            "teacher.snapshot_interval": SETTINGS["snapshot_interval"], "trainer.batch_size": BATCH, "trainer.micro_batch_size": SETTINGS["micro_batch_size"],
            "trainer.steps": steps, "trainer.schedule_steps": SETTINGS["schedule_steps"], "trainer.learning_rate": SETTINGS["learning_rate"],
            "checkpoint.interval": 1000, **{f"metrics.{role}_listen": "127.0.0.1:0" for role in ("rollout", "teacher", "trainer")}, **more}
    flags = [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
    with open(folder / f"{name}.log", "w") as log:
        code = subprocess.run([BIN / "dapd", "run", folder / "config.yaml", *flags], stdout=log, stderr=log).returncode
    if code:
        sys.exit((folder / f"{name}.log").read_text())
    lines = [json.loads(line) for line in (folder / "runs" / name / "metrics.jsonl").read_text().splitlines()]
    return [{"seconds": sum(line["seconds"].values()), "loss": line["loss"], "generated_tokens": line["generated_tokens"]} for line in lines]


def main():
    if not torch.cuda.is_available():
        print("G8  skipped: no GPU")
        return
    row = Row("G8", f"whole steps of {BATCH} problems, Qwen3-1.7B's shape, one GPU for all services, against the official step in PyTorch")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_model(folder / "model")
        (folder / "config.yaml").write_text("{}\n")
        subprocess.run([BIN / "dapd", "problems", "--task", "unit_conversion", "--count", "200", "--output", folder / "train.jsonl"], check=True, capture_output=True)
        steps = run(folder, "ours", WARM_STEPS + PAIRS)
        ours = steps[WARM_STEPS:]
        samples = sorted((folder / "runs/ours/samples").glob("step-*.jsonl"))[0]
        rows = [json.loads(line) for line in samples.read_text().splitlines()]
        (folder / "official.json").write_text(json.dumps({**SETTINGS, "steps": [rows]}))
        # A step without a learning rate leaves the adapter that a run starts with.
        run(folder, "start", 1, **{"trainer.learning_rate": 1e-30})
        command = [PYTHON, __file__, folder / "model", folder / "runs/start/adapter", folder / "official.json"]
        with Contender("the official step", command) as official:
            theirs = [official.round() for _ in range(1 + PAIRS)]
        row.check("relative difference of the first step's loss", abs(steps[0]["loss"] / theirs[0]["loss"] - 1), 5e-2)
        theirs = theirs[1:]
    for name, figures in ("ours", ours), ("official", theirs):
        row.figure(name, f"{median(figures):.1f} s/step, {median(figures, 'generated_tokens'):.0f} tokens sampled a step")
    row.figure("seconds a step", f"{median(ours):.1f}", "<= 14", median(ours) <= 14)
    faster = Ratio(ours, theirs)
    row.figure("times faster than the official", faster, ">= 4", faster.median >= 4)


if __name__ == "__main__":
    peer(*sys.argv[1:])

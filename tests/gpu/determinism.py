"""Checks that the same GPU gives the same bits twice: steps and a whole run with model.deterministic, and answers
whatever is decoded beside them."""

import hashlib
import json
import pathlib
import sys
import tempfile

import our_run
import trial
from duel import Row
from trial import DEVICE, LABORATORY, REHEARSAL

KEY = "model.deterministic"


def digest(folder):
    return hashlib.sha256((folder / "adapter/adapter_model.safetensors").read_bytes()).hexdigest()


def train_twice(row, folder, name, model, samples):
    for precision in "float32", "bfloat16":
        for settings in ({KEY: "true"}, {}):
            outs = [trial.replay(folder / f"{name}-{precision}-{i}", samples, model, DEVICE, precision, steps=True, **{"trainer.batch_size": 4, **settings})
                    for i in range(2)]
            same = digest(outs[0]) == digest(outs[1])
            if settings:
                row.check(f"{name}, {precision}: adapters after the same steps that differ, {KEY}", not same, 0)
            else:
                row.figure(f"{name}, {precision}: adapters by default", "the same bits" if same else "differ")


def run_twice(row, folder):
    """Runs all three services twice; the times of their requests differ between the runs."""
    our_run.prepare(folder)
    (folder / "model").symlink_to(LABORATORY)
    digests = []
    for name in "first", "second":
        our_run.run(folder, name, **{KEY: "true", "model.device": DEVICE, "model.precision": "bfloat16", "trainer.steps": 2, "trainer.batch_size": 4,
                                     "trainer.micro_batch_size": 2, "rollout.max_new_tokens": 24, "rollout.slots": 4, "trainer.learning_rate": 1e-3})
        digests.append(digest(folder / "runs" / name))
    row.check(f"adapters of the same run that differ, bfloat16, {KEY}", digests[0] != digests[1], 0)


def decode_alone(row, folder, model, precision):
    """Decodes each answer alone and beside seven others, with the same number of slots."""
    prompts = [{"id": f"p{i}", "input_ids": [(i * 7919 + j * 104729) % 250 for j in range(5 + 3 * i)]} for i in range(8)]
    answers = []
    for number, group in enumerate([prompts, *([prompt] for prompt in prompts)]):
        asked, out = folder / f"asked-{number}.jsonl", folder / f"answered-{number}.jsonl"
        asked.write_text("".join(json.dumps(prompt) + "\n" for prompt in group))
        trial.dapd("generate", "--model", model, "--input", asked, "--output", out, "--device", DEVICE, "--precision", precision, "--slots", 8,
                   "--max-new-tokens", 32, "--temperature", 0)
        answers.append({line["id"]: line["ids"] for line in trial.lines(out)})
    together = answers[0]
    alone = {key: ids for each in answers[1:] for key, ids in each.items()}
    row.check(f"greedy answers of {len(prompts)} that depend on their neighbours, {precision}", sum(alone[key] != together[key] for key in together), 0)


def main():
    row = Row("determinism", f"the same bits on {DEVICE}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        model = LABORATORY if REHEARSAL else trial.write_wide_model(folder / "wide")
        for precision in "float32", "bfloat16":
            with row.part(f"answers, {precision}"):
                decode_alone(row, folder, model, precision)
        if not trial.knows(KEY):
            sys.exit(f"these programs have no {KEY}")
        samples = trial.write_samples(folder / "samples.jsonl", 8, 16 if REHEARSAL else 200, 256)
        with row.part("steps"):
            train_twice(row, folder, "replay", model, samples)
        with row.part("a whole run"):
            run_twice(row, folder)

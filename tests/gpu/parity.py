"""Compares the GPU with the CPU by the programs themselves: logits, answers, the objective with its gradients, ten
training steps.

The limits in float32 allow for another order of sums. In bfloat16 both sides round in different places: the GPU's
tensors may be twice as far from the CPU's float32 as the CPU's own bfloat16 is (flash attention rounds
probabilities, too).
"""

import json
import pathlib
import random
import tempfile

import trial
from duel import Row, by_size, read_json
from trial import DEVICE, LABORATORY, REHEARSAL

LOGITS = 2e-3  # absolute, the same as in cuda_parity_test.cc
LOSS, GRADIENT = 1e-4, 1e-3
STEPS, STEP_LOSS = 10, 1e-3
# Adam divides a gradient by its own size: where the gradient is only rounding, so is the sign of the step.
STEP_ADAPTER = 5e-2
ROUNDINGS = 2.0
# The CPU may by chance be exact for a single number. Row G8 allows the same between two implementations.
ROUNDED_LOSS = 5e-2
NEW_TOKENS = 24

SIDES = {"exact": ("cpu", "float32"), "ours": (DEVICE, "float32"), "rounded": ("cpu", "bfloat16"), "ours-rounded": (DEVICE, "bfloat16")}


def compare_logits(row, folder, name, model, vocabulary):
    rng = random.Random(1)
    texts = folder / "texts.jsonl"
    texts.write_text("".join(json.dumps({"id": f"t{i}", "input_ids": [rng.randrange(vocabulary) for _ in range(length)]}) + "\n"
                             for i, length in enumerate((1, 7, 128, 200))))

    def logits(side, device, precision):
        out = folder / f"{side}.safetensors"
        trial.dapd("score", "--model", model, "--input", texts, "--output", out, "--precision", precision, "--device", device, "--logits")
        return {key: tensor for key, tensor in trial.tensors(out).items() if key.endswith(".logits")}

    found = trial.side_by_side(logits, SIDES)
    exact = found["exact"]
    largest = max((float((found["ours"][key] - exact[key]).abs().max()) for key in exact), key=by_size)
    row.check(f"{name}: largest error of a logit, float32", largest, LOGITS)
    row.check(f"{name}: logits in bfloat16, relative", trial.relative(found["ours-rounded"], exact), ROUNDINGS * trial.relative(found["rounded"], exact))


def compare_answers(row, folder):
    """Compares greedy and sampled answers of the laboratory model, whose logits have no ties."""
    prompts = folder / "prompts.jsonl"
    problems = trial.lines(trial.write_samples(folder / "for-prompts.jsonl", 16, 6, 256))
    prompts.write_text("".join(json.dumps({"id": each["id"], "messages": [{"role": "user", "content": each["problem"]}]}) + "\n" for each in problems))
    for kind, sampling in ("greedy", ["--temperature", 0]), ("sampled", ["--temperature", 1.1, "--top-k", 20, "--top-p", 0.95, "--seed", 7]):
        ids = []
        for device in "cpu", DEVICE:
            out = folder / f"answers-{device}.jsonl"
            trial.dapd("generate", "--model", LABORATORY, "--input", prompts, "--output", out, "--device", device, "--slots", 8,
                       "--max-new-tokens", NEW_TOKENS, *sampling)
            ids.append({answer["id"]: answer["ids"] for answer in trial.lines(out)})
        row.check(f"{kind} answers that differ, of {len(problems)}, float32", sum(ids[0][key] != ids[1][key] for key in ids[0]), 0)


def compare_objective(row, folder, name, model, samples):
    """Compares value and gradients under an adapter from ten steps, whose B is not zero."""
    adapter = trial.replay(folder / "start", samples, model, "cpu", "float32", steps=True, **{"trainer.batch_size": 4}) / "adapter"

    def objective(side, device, precision):
        out = trial.replay(folder / side, samples, model, device, precision, adapter=adapter)
        return read_json((out / "objective.json").read_text()), trial.tensors(out / "gradients.safetensors")

    exact, ours, rounded, ours_rounded = trial.side_by_side(objective, SIDES).values()
    for term, values in exact[0]["terms"].items():
        row.check(f"{name}: {term}, float32, relative", abs(ours[0]["terms"][term]["value"] / values["value"] - 1), LOSS)
    wrong, where = trial.worst(ours[1], exact[1])
    row.check(f"{name}: worst gradient, float32, relative ({where})", wrong, GRADIENT)
    row.check(f"{name}: objective in bfloat16, relative", abs(ours_rounded[0]["loss"] / exact[0]["loss"] - 1), ROUNDED_LOSS)
    row.check(f"{name}: all gradients in bfloat16, relative", trial.relative(ours_rounded[1], exact[1]),
              ROUNDINGS * trial.relative(rounded[1], exact[1]))


def compare_steps(row, folder, name, model, samples):
    batch = len(trial.lines(samples)) // STEPS

    def stepped(side, device):
        return trial.replay(folder / f"{side}-steps", samples, model, device, "float32", steps=True, **{"trainer.batch_size": batch})

    expected, found = trial.side_by_side(stepped, {"exact": ("cpu",), "ours": (DEVICE,)}).values()
    losses = [[line["loss"] for line in trial.lines(out / "metrics.jsonl")] for out in (found, expected)]
    row.check(f"{name}: steps missing of {STEPS}", STEPS - len(losses[0]), 0)
    row.check(f"{name}: worst loss of a step, float32, relative", max((abs(x / y - 1) for x, y in zip(*losses, strict=True)), key=by_size), STEP_LOSS)
    adapters = [trial.tensors(out / "adapter/adapter_model.safetensors") for out in (found, expected)]
    row.check(f"{name}: adapter after {STEPS} steps, float32, relative", trial.relative(*adapters), STEP_ADAPTER)


def main():
    row = Row("parity", f"{DEVICE} against the CPU, by dapd score, generate and replay")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        models = {"laboratory": (LABORATORY, 256)}
        if not REHEARSAL:
            models["2 layers of Qwen3-0.6B"] = trial.write_wide_model(folder / "wide"), 150_000
        for number, (name, (model, vocabulary)) in enumerate(models.items()):
            place = folder / str(number)
            place.mkdir()
            samples = trial.write_samples(place / "samples.jsonl", 2 * STEPS, 16 if REHEARSAL else 100, vocabulary)
            with row.part(f"{name}: logits"):
                compare_logits(row, place, name, model, vocabulary)
            with row.part(f"{name}: objective"):
                compare_objective(row, place, name, model, samples)
            with row.part(f"{name}: steps"):
                compare_steps(row, place, name, model, samples)
        # Decoding must not stop at an end token.
        with row.part("answers"):
            compare_answers(row, folder)

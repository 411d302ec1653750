"""C4: the work that our planners find in a batch of 32, against the official layout: groups padded to their widest view, and the head over
the union of a group's scored positions (performance.md, section 0)."""

import dataclasses
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import transformers

from duel import BIN, ROOT, Row

sys.path.insert(0, str(ROOT / "tests" / "oracle"))
import make_qwen_tokenizer  # noqa: E402
import reference_objective  # noqa: E402
import test_objective  # noqa: E402
from conftest import read_jsonl, run_dapd, write_jsonl  # noqa: E402

BATCH, MICRO_BATCH, ROLLOUT, REFERENCE = 32, 2, 1024, 1024
PROBLEM_WORDS = 110  # about 200 tokens with the template
STUDENTS = [["none_rollout", "self_rollout"], ["none_reference", "self_reference"]]
BASE_TEACHERS = [["none_rollout", "cross_rollout"], ["none_reference", "cross_reference"]]
SNAPSHOT_TEACHERS = [["cross_rollout"], ["cross_reference"]]
# Products of the trunk's size per token: a live view has forward, recomputation and the input's gradient; a teacher's view has only
# forward.
LIVE_COST, TEACHER_COST = 3, 1


def recorded_batch():
    rng = random.Random(11)
    words = ["seven", "triangle", "prime", "length", "sum", "of", "the", "digits", "area", "and", "integer", "x", "equal", "point", "circle"]

    def text(count):
        return " ".join(rng.choice(words) for _ in range(count))

    return [{"id": f"s{i}", "problem": text(PROBLEM_WORDS + rng.randrange(40)), "reference": text(2 * REFERENCE),
             "rollout_ids": [rng.randrange(1000, 100000) for _ in range(ROLLOUT)]} for i in range(BATCH)]


def views_of(folder):
    make_qwen_tokenizer.write(folder)
    transformers.Qwen3Config(vocab_size=151936, eos_token_id=151645, pad_token_id=151643, head_dim=128).save_pretrained(folder)
    config = folder / "config.yaml"
    config.write_text("{}\n")
    run_dapd("views", "--config", config, "--set", f"model.path={folder}", "--set", f"objective.max_reference_tokens={REFERENCE}",
             "--input", write_jsonl(folder / "batch.jsonl", recorded_batch()), "--output", folder / "views.jsonl")
    return folder / "views.jsonl"


def official(samples, groups):
    """Returns the tokens of the body and the rows of the head, micro-batch by micro-batch."""
    tokens = rows = 0
    for begin in range(0, len(samples), MICRO_BATCH):
        for names in groups:
            views = [sample["views"][name] for sample in samples[begin : begin + MICRO_BATCH] for name in names]
            width = max(len(view["input_ids"]) for view in views)
            first = min(view["scored_from"] - 1 for view in views)
            tokens += len(views) * width
            rows += len(views) * (width - first)
    return tokens, rows


@dataclasses.dataclass(frozen=True)
class Work:
    live: int  # tokens that the trainer passes
    teacher: int  # tokens that the teachers pass
    head_rows: int

    @property
    def body(self):
        return LIVE_COST * self.live + TEACHER_COST * self.teacher


def official_work(samples):
    tokens, rows = zip(*(official(samples, groups) for groups in (STUDENTS, BASE_TEACHERS, SNAPSHOT_TEACHERS)), strict=True)
    return Work(tokens[0], sum(tokens[1:]), sum(rows))


def our_work(path):
    """Returns the work of our planners after a refresh of the snapshot, and while it is still the base."""
    # 128 is a teacher's default of teacher.chunk_tokens on a CPU.
    ours = json.loads(subprocess.run([BIN / "dapd_plan_benchmark", path, "128"], capture_output=True, text=True, check=True).stdout)
    return [Work(ours["live_tokens"], ours["teacher_tokens" + suffix], ours["head_rows" + suffix]) for suffix in ("", "_at_first")]


def check_loss(row, folder):
    """Compares the packed and shared pass with the transcription that computes every view alone."""
    case = test_objective.Case(folder, "qwen3", 4)
    given = {"adapter": test_objective.make_adapter(folder / "live", case.folder, 1),
             "snapshot": test_objective.make_adapter(folder / "snapshot", case.folder, 2)}
    out = case.replay("--adapter", given["adapter"], "--snapshot", given["snapshot"])
    oracle = reference_objective.Objective(case.base, test_objective.RANK, test_objective.ALPHA, clip=0.05, **given)
    expected = oracle.accumulate(case.views(), MICRO_BATCH)
    row.check("loss of a small batch, relative", test_objective.compare_terms(json.loads((out / "objective.json").read_text()), expected), 1e-5)


def main():
    row = Row("C4", f"work planned for a batch of {BATCH}, rollouts and references of {ROLLOUT} tokens")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check_loss(row, folder / "small")
        path = views_of(folder / "qwen")
        released, ours = official_work(read_jsonl(path)), our_work(path)
    row.figure("official: live and teacher tokens, head rows", f"{released.live}, {released.teacher}, {released.head_rows}")
    for work, when, target in zip(ours, ("after a refresh", "before the first refresh"), (0.70, 0.58), strict=True):
        row.figure(f"ours {when}: live and teacher tokens, head rows", f"{work.live}, {work.teacher}, {work.head_rows}")
        ratio, rows = work.body / released.body, work.head_rows / released.head_rows
        row.figure(f"body work {when}, weighted by its products", f"{ratio:.3f}", f"<= {target}", ratio <= target)
        row.figure(f"head rows {when}", f"{rows:.3f}", "<= 0.52", rows <= 0.52)

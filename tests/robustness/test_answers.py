"""Samples with several answers: a run's result does not depend on workers, on what dies, or on when answers come."""

import json
import signal

import pytest
import torch
from safetensors.torch import load_file

from cluster import BATCH, STEPS, Reference
from test_ranks import finish, start_ranks, tensors

# The tiny model is never right: its self-teacher reads feedback, and the first candidate replaces a verified answer.
# With one token out of two per answer, two answers are often equal.
KINDS = {
    "groups": {"objective.preset": "sdpo", "rollout.group_size": 2, "objective.sdpo.feedback": "always"},
    "dual": {"rollout.source": "dual", "rollout.max_new_tokens": 1, "rollout.top_k": 2},
    "verified": {"rollout.source": "verified"},
}


@pytest.fixture(scope="module")
def undisturbed(shared_cluster):
    """Results by kind and rollout.max_staleness."""
    return {(kind, lag): Reference(shared_cluster, name=f"answers-{kind}-{lag}", lag=lag, **settings)
            for kind, settings in KINDS.items() for lag in (0, 1)}


def samples(cluster, run):
    folder = cluster.workspace.runs(run) / "samples"
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in sorted(folder.iterdir())]


def accepted(cluster, run):
    """Returns (step, sample) -> attempts."""
    attempts = {}
    for line in (cluster.workspace.runs(run) / "ledger.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "accepted":
            attempts.setdefault((event["step"], event["sample"]), []).append(event.get("attempt", 0))
    return attempts


def test_every_answer_of_a_group_is_its_own(cluster, undisturbed):
    undisturbed["groups", 0].of_seed(0)
    rows = [row for step in samples(cluster, "answers-groups-0-0") for row in step]
    assert len(rows) == STEPS * BATCH and all("feedback" in row for row in rows)
    pairs = list(zip(rows[::2], rows[1::2]))
    assert all(first["problem"] == second["problem"] for first, second in pairs)
    assert sum(first["rollout_ids"] != second["rollout_ids"] for first, second in pairs) > len(pairs) / 2
    assert all(line["rollout"]["taught_fraction"] == 1.0 for line in cluster.workspace.metrics("answers-groups-0-0"))


def test_equal_answers_are_sampled_again(cluster, undisturbed):
    undisturbed["dual", 0].of_seed(0)
    attempts = accepted(cluster, "answers-dual-0-0")
    rows = samples(cluster, "answers-dual-0-0")
    again = 0
    for (step, sample), numbers in attempts.items():
        row = rows[step - 1][sample]
        assert sorted(numbers) == list(range(len(numbers))) and 2 <= len(numbers) <= 10
        assert row["reference_ids"] != row["rollout_ids"] or len(numbers) == 10
        again += len(numbers) > 2
    print(f"{again} of {len(attempts)} second answers were sampled again")
    assert again > 0


def test_a_verified_sample_has_four_candidates(cluster, undisturbed):
    undisturbed["verified", 0].of_seed(0)
    assert all(sorted(numbers) == [0, 1, 2, 3, 4] for numbers in accepted(cluster, "answers-verified-0-0").values())


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name, hit", [("ledger.after_accept", 5), ("ledger.before_accept", 12), ("rollout.after_collect", 2),
                                       ("train.before_micro_batch", 7), ("checkpoint.after_rename", 1)])
def test_a_killed_trainer_goes_on_to_the_same_result(name, hit, kind, lag, cluster, undisturbed):
    run = f"answers-{kind}-{name}-{lag}"
    settings = undisturbed[kind, lag].settings(0)
    code = cluster.train(run, failpoints=f"{name}=kill@{hit}", **settings)
    assert code == -signal.SIGKILL, f"code {code}\n{cluster.log(run)}"
    assert cluster.train(run, **settings) == 0, cluster.log(run)
    seen = undisturbed[kind, lag].assert_equal(run, 0)
    print(f"{kind}, {name}@{hit}: {seen.attempt} attempts, {seen.resampled} answers sampled again")


@pytest.mark.parametrize("kind", KINDS)
def test_one_worker_gives_the_result_of_all(kind, cluster, undisturbed):
    run = f"answers-{kind}-alone"
    settings = undisturbed[kind, 0].settings(0)
    assert cluster.train(run, rollouts=[cluster.rollouts[0].address], **settings) == 0, cluster.log(run)
    undisturbed[kind, 0].assert_equal(run, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_two_ranks_give_the_result_of_one(kind, cluster, undisturbed):
    undisturbed[kind, 0].of_seed(0)
    run, one = f"answers-{kind}-ranks", f"answers-{kind}-0-0"
    finish(cluster, run, start_ranks(cluster, run, 2, **undisturbed[kind, 0].settings(0)))
    # After the first step the policies differ by rounding, and so may an answer.
    assert samples(cluster, run)[0] == samples(cluster, one)[0]
    (line, *_), (expected, *_) = cluster.workspace.metrics(run), cluster.workspace.metrics(one)
    assert line["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    assert line["rollout"] == expected["rollout"]
    difference = torch.stack([(value - tensors(cluster, one)[name]).norm() for name, value in tensors(cluster, run).items()]).norm()
    print(f"{kind}: two ranks' adapter differs by {difference:.1e}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_of_its_samples_ends_in_its_adapter(kind, cluster, undisturbed):
    undisturbed[kind, 0].of_seed(0)
    workspace, one = cluster.workspace, f"answers-{kind}-0-0"
    batch, out = workspace.folder / f"{kind}.jsonl", workspace.folder / f"{kind}-replayed"
    batch.write_text("".join(path.read_text() for path in sorted((workspace.runs(one) / "samples").iterdir())))
    flags = {**KINDS[kind], "run.seed": 1000, "trainer.batch_size": BATCH, "trainer.steps": STEPS, "teacher.snapshot_interval": 2}
    arguments = [part for key, value in flags.items() for part in ("--set", f"{key}={value}")]
    workspace.dapd("replay", "--config", workspace.config, "--batch", batch, "--output", out, "--apply", *arguments)
    fresh = workspace.folder / f"{kind}-fresh"
    workspace.dapd("adapter", "init", "--model", workspace.model, "--output", fresh, "--rank", 4, "--alpha", 8, "--seed", 1000)
    run, replayed, start = (load_file(folder / "adapter_model.safetensors") for folder in (workspace.runs(one) / "adapter", out / "adapter", fresh))
    difference, update = (sum((run[name] - other[name]).square().sum() for name in run).sqrt() for other in (replayed, start))
    print(f"{kind}: after {STEPS} steps the replay differs by {difference / update:.1e} of the update's norm {update:.3f}")
    assert difference / update < 1e-3

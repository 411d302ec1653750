"""Terms that read the moving average and the live adapter, which a teacher process serves."""

import signal

import pytest
from safetensors.torch import load_file

from cluster import STEPS, Reference

TERMS = "[" + ", ".join(
    f"{{name: {name}, student: {student}, teacher: {teacher}, teacher_weights: {weights}, clip: 0.05, weight: {weight}}}"
    for name, student, teacher, weights, weight in (
        ("mean", "none_rollout", "cross_rollout", "ema", 1.0),
        ("self", "none_reference", "cross_reference", "live", 0.7),
        ("old", "self_rollout", "cross_rollout", "snapshot", 0.3),
    )
) + "]"
SETTINGS = {"objective.terms": TERMS, "teacher.ema_rate": 0.3}


@pytest.fixture(scope="module")
def undisturbed(shared_cluster):
    """Results by rollout.max_staleness."""
    return {lag: Reference(shared_cluster, name=f"sets-{lag}", lag=lag, **SETTINGS) for lag in (0, 1)}


def test_a_teacher_serves_each_set_in_its_newest_version(cluster, undisturbed):
    undisturbed[0].of_seed(0)
    versions = {name: cluster.teachers[0].metric(f'dapd_teacher_policy_version{{weights="{name}"}}') for name in ("snapshot", "ema", "live")}
    print(versions)
    assert versions == {"snapshot": 4, "ema": STEPS, "live": STEPS}


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("name, hit", [("publish.before_weights", 4), ("publish.after_weights", 3), ("train.before_micro_batch", 7),
                                       ("checkpoint.after_rename", 1), ("optimizer.after_step", 4)])
def test_a_killed_trainer_goes_on_to_the_same_result(name, hit, lag, cluster, undisturbed):
    run = f"sets-{name}-{lag}"
    settings = undisturbed[lag].settings(0)
    code = cluster.train(run, failpoints=f"{name}=kill@{hit}", **settings)
    assert code == -signal.SIGKILL, f"code {code}\n{cluster.log(run)}"
    assert cluster.train(run, **settings) == 0, cluster.log(run)
    undisturbed[lag].assert_equal(run, 0)


def test_a_killed_teacher_is_given_every_set_again(cluster, undisturbed):
    undisturbed[0].of_seed(0)
    teacher = cluster.teachers[0]
    teacher.kill()
    teacher.start(failpoints="worker.before_score=kill@9").wait_until_healthy()
    trainer = cluster.start_trainer("sets-teacher", **undisturbed[0].settings(0))
    teacher.process.wait(timeout=120)
    teacher.start().wait_until_healthy()
    assert trainer.wait(timeout=180) == 0, cluster.log("sets-teacher")
    undisturbed[0].assert_equal("sets-teacher", 0)


def test_a_replay_of_its_samples_ends_in_its_adapter(cluster, undisturbed):
    undisturbed[0].of_seed(0)
    workspace = cluster.workspace
    batch, out = workspace.folder / "sets.jsonl", workspace.folder / "sets-replayed"
    batch.write_text("".join(path.read_text() for path in sorted((workspace.runs("sets-0-0") / "samples").iterdir())))
    flags = {**SETTINGS, "run.seed": 1000, "trainer.batch_size": 4, "trainer.steps": STEPS, "teacher.snapshot_interval": 2}
    arguments = [part for key, value in flags.items() for part in ("--set", f"{key}={value}")]
    workspace.dapd("replay", "--config", workspace.config, "--batch", batch, "--output", out, "--apply", *arguments)
    fresh = workspace.folder / "sets-fresh"
    workspace.dapd("adapter", "init", "--model", workspace.model, "--output", fresh, "--rank", 4, "--alpha", 8, "--seed", 1000)
    run, replayed, start = (load_file(folder / "adapter_model.safetensors") for folder in (workspace.runs("sets-0-0") / "adapter", out / "adapter", fresh))
    difference, update = (sum((run[name] - other[name]).square().sum() for name in run).sqrt() for other in (replayed, start))
    print(f"after {STEPS} steps the replay differs by {difference / update:.1e} of the update's norm {update:.3f}")
    assert difference / update < 1e-3

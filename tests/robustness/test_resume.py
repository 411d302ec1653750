"""A trainer that is killed anywhere resumes and reaches the same adapter and the same losses, bit for bit."""

import json
import pathlib
import random
import re
import signal
import time

import pytest

from cluster import BATCH, SEEDS, STEPS, copy_run, damage, stop_with_two_checkpoints
from workspace import ROOT, wait_for

# test_copy.py has the failpoints of copies, and test_grader.py the two around a grade of a grader of the user's own:
# they are reached only if there is a copy or a grader.
SOURCES = [*(ROOT / "common").rglob("*.cc"),
           *(path for path in (ROOT / "services" / "trainer").rglob("*.cc") if path.parent.name != "copy")]
OF_A_GRADER = {"ledger.before_grade", "ledger.after_grade"}
FAILPOINTS = sorted({name for path in SOURCES for name in re.findall(r'DAPD_FAILPOINT(?:_STATUS)?\("([^"]+)"\)', path.read_text())} - OF_A_GRADER)


def test_there_are_enough_failpoints():
    print(len(FAILPOINTS), "failpoints:", *FAILPOINTS)
    assert len(FAILPOINTS) >= 25


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", FAILPOINTS)
def test_killed_at_a_failpoint_it_goes_on_to_the_same_result(name, seed, cluster, reference):
    reference.of_seed(seed)
    # The first seed takes the first hit, so that every failpoint is known to be reached; the other seeds take any hit.
    chance = random.Random(f"{name}{seed}")
    hit, killed = 1 if seed == 0 else chance.randint(1, 12), False
    while not killed:
        run = f"{name}-{seed}-{hit}"
        code = cluster.train(run, failpoints=f"{name}=kill@{hit}", **{"run.seed": 1000 + seed})
        killed = code == -signal.SIGKILL
        assert killed or (code == 0 and hit > 1), f"code {code}\n{cluster.log(run)}"
        if not killed:
            hit = chance.randint(1, hit - 1)
    start = time.monotonic()
    code = cluster.train(run, **{"run.seed": 1000 + seed})
    assert code == 0, cluster.log(run)
    seen = reference.assert_equal(run, seed)
    folder = cluster.workspace.runs(run)
    assert json.loads((folder / "outcome.json").read_text())["state"] == "finished"
    assert not list(folder.rglob("*.tmp-*")), "half a file that a killed trainer left"
    print(f"{name}@{hit}: {seen.attempt} attempts, {seen.resampled} answers sampled again, resumed run took {time.monotonic() - start:.1f} s")


def test_a_trainer_whose_device_is_lost_asks_to_be_started_again(cluster, reference):
    reference.of_seed(0)
    run = "lost-device"
    code = cluster.train(run, failpoints="device.compute=error@4", **{"run.seed": 1000})
    assert code == 75, f"code {code}\n{cluster.log(run)}"
    assert "will work again only in a new process" in cluster.log(run)
    assert cluster.train(run, **{"run.seed": 1000}) == 0, cluster.log(run)
    reference.assert_equal(run, 0)


# Checkpoints are made after the steps 2, 4 and 5; the first has no older checkpoint to prune.
@pytest.mark.parametrize("name, hit", [("checkpoint.after_rename", 3), ("checkpoint.during_prune", 2), ("checkpoint.after_prune", 3), ("checkpoint.before_export", 3)])
def test_killed_behind_the_last_checkpoint_the_adapter_is_still_exported(name, hit, cluster, reference):
    reference.of_seed(0)
    run = f"last-{name}"
    code = cluster.train(run, failpoints=f"{name}=kill@{hit}", **{"run.seed": 1000})
    assert code == -signal.SIGKILL, f"code {code}\n{cluster.log(run)}"
    assert cluster.train(run, **{"run.seed": 1000}) == 0, cluster.log(run)
    assert "resuming after step 5" in cluster.log(run)
    reference.assert_equal(run, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_everything_killed_at_random_times_goes_on_to_the_same_result(seed, cluster, reference):
    reference.of_seed(seed)
    chance = random.Random(seed)
    run = f"random-{seed}"
    kills = 0
    while True:
        trainer = cluster.start_trainer(run, failpoints="train.before_micro_batch=sleep:100", **{"run.seed": 1000 + seed})
        deadline = time.monotonic() + chance.uniform(0.1, 2.0)
        while trainer.poll() is None and time.monotonic() < deadline and kills < 6:
            time.sleep(0.01)
        if kills >= 6 or trainer.poll() is not None:
            break
        for victim in [trainer, *(service.process for service in cluster.services)]:
            victim.kill()
            victim.wait()
        kills += 1
        cluster.revive()
    assert trainer.wait(timeout=180) == 0, cluster.log(run)
    seen = reference.assert_equal(run, seed)
    print(f"seed {seed}: everything killed {kills} times, {seen.attempt} attempts that began a step, {seen.resampled} answers sampled again")


@pytest.fixture(scope="module")
def stopped_run(shared_cluster):
    return stop_with_two_checkpoints(shared_cluster, "damaged", "rollout.before_start=kill@5", **{"run.seed": 1000})


@pytest.mark.parametrize("file", ["adapter/adapter_model.safetensors", "adapter/adapter_config.json", "snapshot/adapter_model.safetensors",
                                  "optimizer.safetensors", "state.json", "manifest.json"])
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_it_taken(file, cluster, reference, stopped_run):
    run = "damaged-" + file.replace("/", "-")
    old, new = copy_run(cluster.workspace, stopped_run, run)
    damage(new, file, random.Random(file))
    assert cluster.train(run, **{"run.seed": 1000}) == 0, cluster.log(run)
    reference.assert_equal(run, 0)
    log = cluster.log(run)
    assert "is damaged" in log or "step-000004" in log
    assert "resuming after step 2" in log
    assert (cluster.workspace.runs(run) / "checkpoints" / "step-000004.damaged").is_dir()


def test_with_every_checkpoint_damaged_the_run_ends_and_says_so(cluster, stopped_run):
    run = "all-damaged"
    for checkpoint in copy_run(cluster.workspace, stopped_run, run):
        damage(checkpoint, "optimizer.safetensors", random.Random(1))
    # A supervisor does not make it begin anew, either.
    for _ in range(2):
        assert cluster.train(run, **{"run.seed": 1000}) == 6
        assert "no checkpoint in" in cluster.log(run)


def test_a_damaged_ledger_only_costs_sampling(cluster, reference, stopped_run):
    run = "damaged-ledger"
    copy_run(cluster.workspace, stopped_run, run)
    path = cluster.workspace.runs(run) / "ledger.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[3] = lines[3].replace(b"accepted", b"accepteD")
    path.write_bytes(b"\n".join(lines))
    assert cluster.train(run, **{"run.seed": 1000}) == 0, cluster.log(run)
    assert cluster.workspace.adapter_digest(run) == reference.of_seed(0)[0]
    assert "the checksum differs" in cluster.log(run) and path.with_name("ledger.jsonl.damaged").exists()


def test_a_damaged_line_of_the_metrics_only_costs_that_line(cluster, reference, stopped_run):
    run = "damaged-metrics"
    copy_run(cluster.workspace, stopped_run, run)
    path = cluster.workspace.runs(run) / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"step":2', b'"step"\x002', 1))
    damaged = path.read_bytes()
    assert damaged != whole
    assert cluster.train(run, **{"run.seed": 1000}) == 0, cluster.log(run)
    assert f"{path}:2 is damaged" in cluster.log(run)
    assert path.with_name("metrics.jsonl.damaged").read_bytes() == damaged
    adapter, lines, answers = reference.of_seed(0)
    assert reference.result(run) == (adapter, [line for line in lines if line[0] != 2], answers)


@pytest.fixture(scope="module")
def begun_run(shared_cluster):
    """Provides a run without a checkpoint, with answers to its second step."""
    run = "begun"
    code = shared_cluster.train(run, failpoints=f"ledger.after_accept=kill@{BATCH + 2}", **{"run.seed": 1000, "checkpoint.interval": 50})
    assert code == -signal.SIGKILL, shared_cluster.log(run)
    assert not list((shared_cluster.workspace.runs(run) / "checkpoints").iterdir())
    return run


@pytest.fixture(params=["stopped_run", "begun_run"])
def left_run(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("key,value", [("run.seed", 7), ("trainer.learning_rate", 0.5), ("objective.component_clip", 0.06), ("rollout.top_k", 19),
                                       ("rollout.max_staleness", 1), ("teacher.snapshot_interval", 3), ("lora.alpha", 9)])
def test_a_changed_configuration_is_refused_by_name(key, value, cluster, left_run):
    run = f"changed-{key}-of-{left_run}"
    copy_run(cluster.workspace, left_run, run)
    assert cluster.train(run, **{"run.seed": 1000, key: value}) == 3
    assert f"{key}: was " in cluster.log(run)


def test_changed_data_are_refused_by_name(cluster, left_run):
    run = f"changed-data-of-{left_run}"
    copy_run(cluster.workspace, left_run, run)
    other = cluster.workspace.folder / "other.jsonl"
    other.write_text("\n".join((cluster.workspace.folder / "train.jsonl").read_text().splitlines()[:-1]) + "\n")
    assert cluster.train(run, **{"run.seed": 1000, "data.path": other}) == 3
    assert "the data: data.path holds different problems" in cluster.log(run)


def test_a_changed_base_is_refused_by_name_and_a_moved_one_is_not(cluster, reference, left_run):
    import shutil

    for run, change in ((f"moved-base-of-{left_run}", False), (f"changed-base-of-{left_run}", True)):
        copy_run(cluster.workspace, left_run, run)
        model = cluster.workspace.folder / f"model-{run}"
        shutil.copytree(cluster.workspace.model, model)
        if change:
            weights = next(model.glob("*.safetensors"))
            data = bytearray(weights.read_bytes())
            data[-1] ^= 1  # one bit of one weight
            weights.write_bytes(data)
        code = cluster.train(run, **{"run.seed": 1000, "model.path": model})
        assert code == (3 if change else 0), cluster.log(run)
        if change:
            assert "the base model" in cluster.log(run)
        else:
            reference.assert_equal(run, 0)


def test_a_damaged_identity_of_a_run_without_a_checkpoint_is_told_of(cluster, reference, begun_run):
    run = "damaged-identity"
    copy_run(cluster.workspace, begun_run, run)
    (cluster.workspace.runs(run) / "identity.json").write_text("{")
    assert cluster.train(run, **{"run.seed": 1000}) == 0, cluster.log(run)
    assert "identity.json is damaged" in cluster.log(run)
    reference.assert_equal(run, 0)


def test_what_does_not_touch_the_result_may_change(cluster, reference, stopped_run):
    run = "other-settings"
    copy_run(cluster.workspace, stopped_run, run)
    code = cluster.train(run, **{"run.seed": 1000, "checkpoint.interval": 3, "trainer.rpc_timeout_seconds": 50, "run.num_threads": 1})
    assert code == 0, cluster.log(run)
    reference.assert_equal(run, 0)


def test_a_finished_run_is_left_alone_and_goes_on_with_more_steps(cluster):
    run = "more-steps"
    assert cluster.train(run) == 0, cluster.log(run)
    adapter = cluster.workspace.adapter_digest(run)
    assert cluster.train(run) == 0
    assert "holds a finished run" in cluster.log(run) and cluster.workspace.adapter_digest(run) == adapter
    assert cluster.train(run, **{"trainer.steps": STEPS + 2}) == 0, cluster.log(run)
    assert [line["step"] for line in cluster.workspace.metrics(run)] == list(range(1, STEPS + 3))
    longer = "all-steps-at-once"
    assert cluster.train(longer, **{"trainer.steps": STEPS + 2}) == 0
    assert cluster.workspace.adapter_digest(longer) == cluster.workspace.adapter_digest(run)


def test_fewer_steps_than_are_done_are_refused(cluster, reference, stopped_run):
    run = "fewer-steps"
    copy_run(cluster.workspace, stopped_run, run)
    assert cluster.train(run, **{"run.seed": 1000, "trainer.steps": 1}) == 3, cluster.log(run)
    assert "trainer.steps is 1, but the run in" in cluster.log(run)
    assert cluster.train(run, **{"run.seed": 1000}) == 0, cluster.log(run)
    reference.assert_equal(run, 0)


def test_a_second_trainer_on_the_same_run_is_refused(cluster, holds):
    run = "twice"
    first = cluster.start_trainer(run, failpoints=holds[0].at("train.before_micro_batch", 1))
    wait_for(lambda: (cluster.workspace.runs(run) / "ledger.jsonl").exists(), what="the first trainer at work")
    assert cluster.train(run, **{"metrics.trainer_listen": "127.0.0.1:0"}) == 5
    assert "is in use by another trainer" in cluster.log(run)
    holds[0].release()
    assert first.wait(timeout=120) == 0, cluster.log(run)


def test_resume_never_refuses_a_folder_that_holds_a_run(cluster, stopped_run):
    run = "never"
    copy_run(cluster.workspace, stopped_run, run)
    assert cluster.train(run, **{"run.seed": 1000, "run.resume": "never"}) == 3
    assert "run.resume is never" in cluster.log(run)
    assert cluster.train(run, **{"run.seed": 1000}) == 0, cluster.log(run)
    assert cluster.train(run, **{"run.seed": 1000, "run.resume": "never"}) == 3
    assert "already holds a finished run and run.resume is never" in cluster.log(run)


def test_answers_of_the_open_step_are_not_sampled_again(cluster, reference):
    run = "recalled"
    assert cluster.train(run, failpoints=f"ledger.after_accept=kill@{2 * BATCH + 3}", **{"run.seed": 1000}) == -signal.SIGKILL
    assert cluster.train(run, **{"run.seed": 1000}) == 0, cluster.log(run)
    seen = reference.assert_equal(run, 0)
    print(f"{seen.sampled} answers accepted for {STEPS * BATCH} samples, {seen.resampled} again")
    assert seen.resampled == 0
    assert pathlib.Path(cluster.workspace.runs(run) / "checkpoints").is_dir()

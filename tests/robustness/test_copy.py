"""A copy of a run at a URL: whatever dies while it is made, everything that can be restored is complete, and a restored
run ends in the same bits."""

import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import time

import pytest

from cluster import STEPS
from copies import SEED, copied, restore
from fault_proxy import FaultProxy
from stores import SERVERS, either
from workspace import ROOT, wait_for

SOURCES = sorted((ROOT / "services/trainer/copy").glob("*.cc"))
FAILPOINTS = sorted({name for path in SOURCES for name in re.findall(r'DAPD_FAILPOINT\("([^"]+)"\)', path.read_text())})


@pytest.fixture
def own_store(request, tmp_path, monkeypatch):
    """Provides a server that a test may change or stop."""
    made = SERVERS[getattr(request, "param", "s3")](tmp_path)
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    yield made
    made.kill()


def commits(objects):
    return sorted(name for name in objects if name.startswith("commits/"))


def assert_nothing_is_half_copied(objects):
    """Checks that every object has the content of its name, and that every commit names only existing objects."""
    for name, data in objects.items():
        if name.startswith("objects/"):
            assert hashlib.sha256(data).hexdigest() == name.removeprefix("objects/"), name
    for name in commits(objects):
        body, digest, end = objects[name].decode().split("\n")
        assert hashlib.sha256(body.encode()).hexdigest() == digest and end == "", name
        for path, parts in json.loads(body)["files"].items():
            for size, part in parts:
                assert len(objects[f"objects/{part}"]) == size, f"{name}: {path}"


def copier_of(trainer):
    """Returns the process id of the trainer's Python; None while there is none."""
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rsplit(")", 1)[1].split()[1])
            if parent == trainer.pid and "python" in path.with_name("comm").read_text():
                return int(path.parent.name)
        except OSError:
            continue
    return None


@either("store")
def test_a_restored_run_ends_in_the_same_bits(cluster, reference, store, holds):
    run = f"restored-{store.SCHEME}"
    code = cluster.train(run, failpoints="rollout.before_start=kill@5", **copied(store.url("a"), **{"checkpoint.copy_wait_seconds": 0}))
    assert code == -signal.SIGKILL, cluster.log(run)
    # When the run continues on the same machine, it copies what is missing; then the machine is lost with everything on
    # it.
    trainer = cluster.start_trainer(run, failpoints=holds[0].at("rollout.before_start", 1), **copied(store.url("a")))
    wait_for(lambda: "commits/step-000004.json" in store.objects(f"a/{run}"), what="the copy of step 4")
    trainer.kill()
    trainer.wait()
    shutil.rmtree(cluster.workspace.runs(run))
    shown = restore(cluster.workspace, store.url(f"a/{run}"), run).stdout
    assert "after step 4" in shown
    assert not cluster.workspace.runs(run + ".restoring").exists()
    assert cluster.train(run, **copied(store.url("a"))) == 0, cluster.log(run)
    assert "resuming after step 4" in cluster.log(run)
    reference.assert_equal(run, 0)


def test_a_finished_copy_is_the_whole_run(cluster, reference, store):
    run = "finished"
    assert cluster.train(run, **copied(store.url("b"), **{"checkpoint.keep": 2})) == 0, cluster.log(run)
    objects = store.objects(f"b/{run}")
    assert_nothing_is_half_copied(objects)
    assert commits(objects) == ["commits/step-000004.json", "commits/step-000005.json"]
    named = {part for name in commits(objects) for parts in json.loads(objects[name].split(b"\n")[0])["files"].values() for _, part in parts}
    assert {name.removeprefix("objects/") for name in objects if name.startswith("objects/")} == named, "objects that no commit names"
    twin = "finished-twin"
    restore(cluster.workspace, store.url(f"b/{run}"), twin)
    original, restored = cluster.workspace.runs(run), cluster.workspace.runs(twin)
    files = {path.relative_to(restored) for path in restored.rglob("*") if path.is_file()}
    own = {pathlib.Path("outcome.json")}  # it says that the run finished, and has another time
    assert {path for path in files - own if (restored / path).read_bytes() != (original / path).read_bytes()} == set()
    missing = {path.relative_to(original) for path in original.rglob("*") if path.is_file()} - files
    assert all(path.parts[:2] == ("checkpoints", "step-000004") or path.name == ".lock" for path in missing), missing
    reference.assert_equal(twin, 0)
    assert not (original / ".copying").exists()


def test_an_earlier_step_can_be_had_and_leads_to_the_same_end(cluster, reference, store):
    run = "earlier"
    assert cluster.train(run, **copied(store.url("c"), **{"checkpoint.keep": 0})) == 0, cluster.log(run)
    back = "earlier-back"
    refused = restore(cluster.workspace, store.url(f"c/{run}"), back, "--step", 3, check=False)
    assert refused.returncode == 4 and "it has copies of steps 2, 4, 5" in refused.stderr
    restore(cluster.workspace, store.url(f"c/{run}"), back, "--step", 2)
    assert [line["step"] for line in cluster.workspace.metrics(back)] == [1, 2]
    assert cluster.train(back, **SEED) == 0, cluster.log(back)
    assert "resuming after step 2" in cluster.log(back)
    reference.assert_equal(back, 0)


@pytest.mark.parametrize("name", FAILPOINTS)
def test_a_trainer_killed_while_it_copies_leaves_nothing_half_copied(name, cluster, reference, store):
    run = f"killed-{name}"
    # The copy gets some time to arrive there, because the run itself is short.
    settings = copied(store.url("d"), **{"checkpoint.interval": 1})
    code = cluster.train(run, failpoints=f"{name}=kill;train.before_micro_batch=sleep:700", **settings)
    assert code == -signal.SIGKILL, f"code {code}\n{cluster.log(run)}"
    objects = store.objects(f"d/{run}")
    assert_nothing_is_half_copied(objects)
    shutil.rmtree(cluster.workspace.runs(run))
    restored = restore(cluster.workspace, store.url(f"d/{run}"), run, check=False)
    if commits(objects):
        assert restored.returncode == 0, restored.stderr
        assert cluster.train(run, **settings) == 0, cluster.log(run)
        reference.assert_equal(run, 0)
        assert_nothing_is_half_copied(store.objects(f"d/{run}"))
    else:
        assert restored.returncode == 4 and "there is no complete copy" in restored.stderr
        assert not cluster.workspace.runs(run).exists()


def test_a_run_that_goes_on_without_its_copy_keeps_no_links_for_it(cluster, tmp_path):
    run, links = "copied-no-longer", cluster.workspace.runs("copied-no-longer") / ".copying"
    settings = copied(tmp_path / "copy", **{"checkpoint.interval": 1})
    code = cluster.train(run, failpoints="copy.before_commit=kill;train.before_micro_batch=sleep:300", **settings)
    assert code == -signal.SIGKILL and links.exists(), cluster.log(run)
    assert cluster.train(run, **{**settings, "checkpoint.copy_to": ""}) == 0, cluster.log(run)
    assert not links.exists()


def test_a_copier_killed_again_and_again_is_started_again(cluster, reference, store):
    run, kills = "copier-killed", 0
    trainer = cluster.start_trainer(run, failpoints="copy.after_object=sleep:100;train.before_micro_batch=sleep:200", **copied(store.url("e")))
    chance = random.Random(1)
    while kills < 4:
        victim = wait_for(lambda: copier_of(trainer), what="a copying process")
        time.sleep(chance.uniform(0.0, 2.0))
        try:
            os.kill(victim, signal.SIGKILL)
            kills += 1
        except ProcessLookupError:
            pass
        if trainer.poll() is not None:
            break
    assert trainer.wait(timeout=180) == 0, cluster.log(run)
    assert kills >= 2
    objects = store.objects(f"e/{run}")
    assert_nothing_is_half_copied(objects)
    assert commits(objects) == ["commits/step-000005.json"]
    assert "was ended by signal 9" in cluster.log(run)
    reference.assert_equal(run, 0)
    print(f"{kills} kills")


@either("own_store")
def test_a_server_killed_in_the_middle_gets_it_all_again(cluster, reference, own_store):
    run = f"server-killed-{own_store.SCHEME}"
    own_store.start()
    trainer = cluster.start_trainer(run, failpoints="copy.after_object=sleep:50;train.before_micro_batch=sleep:400",
                                    # gcsfs retries silently for half a minute.
                                    **copied(own_store.url(), **{"checkpoint.copy_timeout_seconds": 5}))
    wait_for(lambda: any(name.startswith("objects/") for name in own_store.objects(run)), what="a copy under way")
    own_store.kill()
    wait_for(lambda: "was not copied" in cluster.log(run) or trainer.poll() is not None, what="the failure told")
    own_store.start()
    assert trainer.wait(timeout=180) == 0, cluster.log(run)
    objects = own_store.objects(run)
    assert_nothing_is_half_copied(objects)
    assert commits(objects) == ["commits/step-000005.json"]
    reference.assert_equal(run, 0)


def test_a_server_that_hangs_does_not_stop_the_training(cluster, reference, own_store):
    run = "server-hangs"
    own_store.start().suspend()
    start = time.monotonic()
    code = cluster.train(run, **copied(own_store.url(), **{"checkpoint.copy_timeout_seconds": 2, "checkpoint.copy_wait_seconds": 5}))
    seconds = time.monotonic() - start
    log = cluster.log(run)
    assert code == 0, log
    assert "no sign of progress for 2s" in log and "lacks the latest part of the run" in log
    reference.assert_equal(run, 0)
    own_store.wake()
    print(f"{seconds:.1f} s, of which at most 5 waiting")
    # The same command copies what is missing.
    assert cluster.train(run, **copied(own_store.url())) == 0, cluster.log(run)
    assert commits(own_store.objects(run)) == ["commits/step-000005.json"]


@either("own_store")
def test_a_bucket_without_permission_costs_one_message(cluster, reference, own_store):
    run = f"denied-{own_store.SCHEME}"
    own_store.start(denies=True)
    # It does not wait for a copy at the end, because another attempt cannot succeed.
    assert cluster.train(run, **copied(own_store.url(), **{"checkpoint.interval": 1})) == 0, cluster.log(run)
    log = cluster.log(run)
    told = [line for line in log.splitlines() if "was not copied" in line]
    assert len(told) == 1 and "credentials come from the environment" in told[0] and own_store.url(run) in told[0], log
    assert own_store.SECRET not in log
    reference.assert_equal(run, 0)


@either("store")
def test_a_bucket_that_is_missing_is_called_by_its_name(cluster, reference, store):
    run = f"no-bucket-{store.SCHEME}"
    url = store.url("x", bucket="nobody-made-it")
    assert cluster.train(run, **copied(url, **{"checkpoint.interval": 1})) == 0, cluster.log(run)
    told = [line for line in cluster.log(run).splitlines() if "was not copied" in line]
    assert len(told) == 1 and "there is no bucket nobody-made-it" in told[0], cluster.log(run)
    reference.assert_equal(run, 0)
    nothing = restore(cluster.workspace, f"{url}/{run}", "nothing", check=False)
    assert nothing.returncode == 4 and "there is no bucket nobody-made-it" in nothing.stderr


def test_a_python_without_the_packages_costs_one_message(cluster, reference):
    run = "no-packages"
    python = cluster.workspace.folder / "bare-python"
    python.write_text('#!/bin/sh\nexec python3 -I -S "$@"\n')
    python.chmod(0o755)
    assert cluster.train(run, **copied("s3://nowhere", **{"checkpoint.copy_python": python})) == 0, cluster.log(run)
    told = [line for line in cluster.log(run).splitlines() if "was not copied" in line]
    assert len(told) == 1 and "deploy/requirements-copy.txt" in told[0], cluster.log(run)
    reference.assert_equal(run, 0)


def test_a_slow_connection_gets_the_newest_first(cluster, reference, store):
    run = "slow"
    proxy = FaultProxy(store.port)
    # Nothing passes through it before the last checkpoint exists.
    proxy.blackhole = True
    try:
        settings = copied(store.url("f"), **{"checkpoint.interval": 1, "checkpoint.keep": 1})
        os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{proxy.port}"
        trainer = cluster.start_trainer(run, **settings)
        wait_for(lambda: trainer.poll() is not None or (cluster.workspace.runs(run) / "checkpoints/step-000005").exists(), what="the last checkpoint")
        proxy.blackhole = False
        assert trainer.wait(timeout=180) == 0, cluster.log(run)
    finally:
        os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{store.port}"
        proxy.close()
    steps = [int(step) for step in re.findall(r"the checkpoint of step (\d+) has been copied", cluster.log(run))]
    print("copied:", steps)
    assert steps[-1] == STEPS and len(set(steps)) < STEPS and steps == sorted(steps)
    objects = store.objects(f"f/{run}")
    assert_nothing_is_half_copied(objects)
    assert commits(objects) == ["commits/step-000005.json"]
    reference.assert_equal(run, 0)


def test_another_run_of_the_same_name_is_not_mixed_in(cluster, store):
    run = "same-name"
    assert cluster.train(run, **copied(store.url("h"))) == 0, cluster.log(run)
    before = store.objects(f"h/{run}")
    shutil.rmtree(cluster.workspace.runs(run))
    assert cluster.train(run, **copied(store.url("h"), **{"run.seed": 1001})) == 0, cluster.log(run)
    assert "holds the copy of another run of that name" in cluster.log(run)
    assert store.objects(f"h/{run}") == before


def test_a_run_that_is_lost_before_its_first_copy_does_not_keep_its_place(cluster, reference, store):
    run = "lost-early"
    settings = copied(store.url("j"))
    assert cluster.train(run, failpoints="copy.before_object=kill;train.before_micro_batch=sleep:700", **settings) == -signal.SIGKILL, cluster.log(run)
    assert list(store.objects(f"j/{run}")) == ["owner.json"]
    shutil.rmtree(cluster.workspace.runs(run))
    assert cluster.train(run, **settings) == 0, cluster.log(run)
    assert "is taken over from another run of that name" in cluster.log(run)
    reference.assert_equal(run, 0)
    shutil.rmtree(cluster.workspace.runs(run))
    restore(cluster.workspace, store.url(f"j/{run}"), run)
    reference.assert_equal(run, 0)


def test_a_folder_serves_as_well(cluster, reference, tmp_path):
    run = "to-a-folder"
    assert cluster.train(run, **copied(tmp_path / "copies")) == 0, cluster.log(run)
    found = {str(path.relative_to(tmp_path / "copies" / run)): path.read_bytes() for path in (tmp_path / "copies" / run).rglob("*") if path.is_file()}
    assert_nothing_is_half_copied(found)
    assert not [name for name in found if name.endswith(".part")]
    back = "from-a-folder"
    restore(cluster.workspace, tmp_path / "copies" / run, back)
    reference.assert_equal(back, 0)


def test_dapd_run_copies_what_the_end_of_the_run_could_not(workspace, tmp_path):
    run, disk = "copied-later", tmp_path / "disk"
    disk.write_text("not mounted")
    settings = {"trainer.steps": 2, "checkpoint.copy_to": disk / "runs", "checkpoint.copy_wait_seconds": 1}
    first = workspace.run(run, **settings)
    assert "the same command copies it" in first.stderr
    refused = workspace.run(run, check=False, **settings, **{"run.resume": "never"})
    assert refused.returncode == 3 and "already holds a finished run" in refused.stderr and "remove" not in refused.stderr
    disk.unlink()
    # The state is as if it had been killed while it waited for the copy.
    outcome = workspace.runs(run) / "outcome.json"
    outcome.unlink()
    again = workspace.run(run, **{**settings, "checkpoint.copy_wait_seconds": 600})
    assert "started rollout" not in again.stderr
    assert json.loads(outcome.read_text())["state"] == "finished"
    adapter = workspace.adapter_digest(run)
    shutil.rmtree(workspace.runs(run))
    restore(workspace, disk / "runs" / run, run)
    assert workspace.adapter_digest(run) == adapter and (workspace.runs(run) / "summary.json").exists()


def test_how_far_behind_it_is_can_be_seen(cluster, store):
    run = "measured"
    trainer = cluster.start_trainer(run, **copied(store.url("i"), **{"checkpoint.interval": 1, "trainer.when_done": "serve"}))
    try:
        wait_for(lambda: trainer.poll() is not None or "the run is done" in cluster.log(run), what="the end")
        wait_for(lambda: cluster.metric("dapd_checkpoint_copied_step") == STEPS, what="the last copy counted")
        assert cluster.metric("dapd_checkpoint_last_step") == STEPS
        assert cluster.metric("dapd_checkpoint_copied_total") >= 1 and cluster.metric("dapd_checkpoint_copy_bytes_total") > 10_000
        assert cluster.metric("dapd_checkpoint_copy_failures_total") == 0
    finally:
        trainer.terminate()
        trainer.wait(timeout=60)

"""A run whose disk refuses a write waits, continues without the file or ends, as configured, and loses nothing."""

import json
import resource
import subprocess

import pytest

from cluster import SLOW, finish
from workspace import wait_for


def fill(mount):
    """Takes the last byte of a disk; returns a function that gives it back."""
    ballast = mount / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass
    return ballast.unlink


def make_read_only(mount):
    # A file system with open files cannot be made read-only; then it refuses only new files and appends by name.
    checkpoints = next(mount.glob("*/checkpoints"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", checkpoints], check=True)
    return lambda: subprocess.run(["umount", checkpoints], check=True)


def listed_state(cluster, folder):
    [run] = json.loads(cluster.workspace.dapd("runs", "list", folder, "--json").stdout)
    return run["state"]


@pytest.mark.parametrize("refuse", [fill, make_read_only], ids=["full", "read-only"])
def test_a_disk_that_refuses_pauses_training_until_it_takes_the_write(refuse, cluster, reference, tmp_path):
    """The disks are a small tmpfs that another file fills and leaves, and a read-only tmpfs over the checkpoints."""
    reference.of_seed(0)
    mount = tmp_path / "disk"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", mount], capture_output=True).returncode != 0:
        pytest.skip("ARefusingDiskNeedsToMountATmpfs")
    try:
        run = f"disk-{refuse.__name__}"
        trainer = cluster.start_trainer(run, failpoints=SLOW, **{"run.seed": 1000, "run.output_dir": mount, "checkpoint.interval": 3})
        metrics = mount / run / "metrics.jsonl"
        wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= 1, what="a step")
        mend = refuse(mount)
        wait_for(lambda: "training pauses" in cluster.log(run), what="the pause")
        assert cluster.metric("dapd_trainer_paused_for_disk") == 1
        assert trainer.poll() is None
        assert listed_state(cluster, mount) == "paused"
        mend()
        finish(cluster, run, trainer)
        assert "training continues" in cluster.log(run)
        assert listed_state(cluster, mount) == "finished"
        (cluster.workspace.folder / "runs" / run).symlink_to(mount / run)
        reference.assert_equal(run, 0)
    finally:
        subprocess.run(["umount", "-R", "-l", mount], capture_output=True)


def test_a_failing_sync_keeps_the_checkpoint_before_it(cluster, reference):
    """fsync fails while the second checkpoint is written. With the policy `fail` the run ends, and resumes from the
    first."""
    reference.of_seed(0)
    run = "sync-fails"
    # Checkpoints are at 2 and 4: the files of the first are synced well, then every sync fails.
    code = cluster.train(run, failpoints="file.sync=error@20", **{
        "run.seed": 1000, "checkpoint.on_write_error": "fail", "checkpoint.keep": 2})
    assert code != 0, cluster.log(run)
    assert "No space left" in cluster.log(run)
    checkpoints = sorted(path.name for path in (cluster.workspace.runs(run) / "checkpoints").iterdir())
    print("left behind:", checkpoints)
    assert "step-000002" in checkpoints
    assert cluster.train(run, **{"run.seed": 1000}) == 0, cluster.log(run)
    reference.assert_equal(run, 0)


@pytest.mark.parametrize("policy,code", [("continue", 0), ("fail", 1)])
def test_a_disk_that_refuses_once_ends_or_does_not_end_the_run_as_configured(policy, code, cluster, reference):
    reference.of_seed(0)
    run = f"disk-{policy}"
    trained = cluster.train(run, failpoints="append.before_write=error:2", **{"run.seed": 1000, "checkpoint.on_write_error": policy})
    assert trained == code, cluster.log(run)
    if code == 0:
        assert cluster.workspace.adapter_digest(run) == reference.of_seed(0)[0]
        assert "training continues without it" in cluster.log(run)
    else:
        assert "No space left" in cluster.log(run)


def test_a_limit_on_the_size_of_files_is_a_disk_that_refuses(cluster, reference):
    """The ledger exceeds the limit, and the log would, too; the metrics show it."""
    reference.of_seed(0)
    run = "size-limit"
    trainer = cluster.start_trainer(run, failpoints=SLOW, **{"run.seed": 1000})
    ledger = cluster.workspace.runs(run) / "ledger.jsonl"
    wait_for(lambda: ledger.exists() and ledger.stat().st_size > 0, what="a ledger")
    _, hard = resource.prlimit(trainer.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(trainer.pid, resource.RLIMIT_FSIZE, (ledger.stat().st_size, hard))
    wait_for(lambda: trainer.poll() is not None or cluster.metric("dapd_trainer_paused_for_disk") == 1, what="the pause")
    assert trainer.poll() is None, cluster.log(run)
    resource.prlimit(trainer.pid, resource.RLIMIT_FSIZE, (hard, hard))
    finish(cluster, run, trainer)
    assert "training continues" in cluster.log(run)
    reference.assert_equal(run, 0)

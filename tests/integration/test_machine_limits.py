"""On machines that lack something (locks, room, files, threads), the message names it, and no process waits for ever."""

import errno
import functools
import os
import pathlib
import resource
import secrets
import subprocess
import sys

import pytest
from refused_call import no_locks, refuse
from workspace import BIN, ROOT, free_port, set_flags

CANNOT_LOCK = "No locks available; this file system cannot lock files"


def dapd(*arguments, **kwargs):
    return subprocess.run([BIN / "dapd", *map(str, arguments)], capture_output=True, text=True, timeout=120, **kwargs)


def run(workspace, name, preexec_fn, **settings):
    return dapd("run", workspace.config, *set_flags({"run.name": name, **settings}), preexec_fn=preexec_fn)


def check(workspace, preexec_fn=None, **settings):
    return dapd("check", workspace.config, *set_flags(settings), preexec_fn=preexec_fn)


def test_a_file_system_that_cannot_lock_is_no_other_trainer(workspace):
    result = check(workspace, no_locks)
    assert result.returncode == 0 and CANNOT_LOCK in result.stderr, result
    result = run(workspace, "unlocked", no_locks)
    assert result.returncode == 3 and CANNOT_LOCK in result.stderr and "in use" not in result.stderr and "started" not in result.stderr, result
    settings = {"run.name": "unlocked", "rollout.addresses": f"[127.0.0.1:{free_port()}]", "teacher.addresses": f"[127.0.0.1:{free_port()}]"}
    trainer = subprocess.run(
        [BIN / "dapd-trainer", workspace.config, *set_flags(settings)], capture_output=True, text=True, timeout=120, preexec_fn=no_locks
    )
    assert trainer.returncode == 3 and CANNOT_LOCK in trainer.stderr and "in use" not in trainer.stderr, trainer


@pytest.mark.parametrize("error", [errno.EBADF, errno.ENOTSUP], ids=["EBADF", "ENOTSUP"])
def test_so_it_is_in_an_evaluation_and_in_a_restore(error, workspace, tmp_path):
    reason = f"{os.strerror(error)}; this file system cannot lock files"
    refused = functools.partial(refuse, "flock", error)
    data = workspace.folder / "held_out.jsonl"
    result = dapd("eval", "--model", workspace.model, "--data", data, "--limit", 1, "--output", tmp_path / "answers.jsonl", "--device", "cpu", preexec_fn=refused)
    assert result.returncode == 3 and reason in result.stderr and "another dapd eval" not in result.stderr, result
    workspace.run("copied", **{"checkpoint.copy_to": tmp_path / "copies", "trainer.steps": 1})
    result = dapd("restore", tmp_path / "copies/copied", tmp_path / "back", preexec_fn=refused)
    assert result.returncode == 3 and reason in result.stderr and "another process" not in result.stderr, result


def test_a_follower_does_not_take_it_for_an_end(workspace, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("config.yaml", "metrics.jsonl", ".lock"):
        (folder / name).touch()
    code = (
        f"import sys; sys.path[:0] = [{str(ROOT / 'deploy')!r}, {str(ROOT / 'tests/fakes')!r}]\n"
        "import pathlib, follow, refused_call\n"
        "refused_call.no_locks()\n"
        "try:\n"
        f"    follow.is_held(pathlib.Path({str(folder)!r}))\n"
        "except follow.Refused as error:\n"
        "    print(*error.args)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.startswith(f"3 cannot lock {folder}/.lock: No locks available"), result


@pytest.fixture
def few_inodes(tmp_path):
    mount = tmp_path / "mount"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes=12", "tmpfs", mount], capture_output=True).returncode != 0:
        pytest.skip("mounting a file system needs root")
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)


def test_inodes_that_are_out_are_named_and_not_space(workspace, few_inodes):
    result = check(workspace, **{"run.output_dir": few_inodes})
    assert result.returncode == 0 and "file system has inodes for 11 (df -i)" in result.stderr and "free some space" not in result.stderr, result
    for i in range(20):
        try:
            (few_inodes / str(i)).touch()
        except OSError:
            break
    result = run(workspace, "full", None, **{"run.output_dir": few_inodes})
    assert result.returncode == 1 and "no inodes left" in result.stderr and "free some space" not in result.stderr, result


def few_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))


def test_too_few_open_files_are_no_port_in_use(workspace):
    result = check(workspace, few_files)
    assert "too few open files: about" in result.stderr and "ulimit -Hn" in result.stderr, result
    result = run(workspace, "few-files", few_files)
    assert result.returncode == 3 and "too few open files: about" in result.stderr and "started" not in result.stderr, result
    settings = {"rollout.listen": f"127.0.0.1:{free_port()}", "metrics.rollout_listen": '""'}
    worker = subprocess.run(
        [BIN / "dapd-rollout", workspace.config, *set_flags(settings)], capture_output=True, text=True, timeout=120, preexec_fn=few_files
    )
    assert worker.returncode != 0 and "oo many open files" in worker.stderr and "port is in use" not in worker.stderr, worker


@pytest.fixture
def few_threads(request):
    """Makes a control group of either version that allows thirty threads, or the number that a test sets; joins it."""
    for root in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup"):
        group = pathlib.Path(root) / f"dapd-test-{secrets.token_hex(4)}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / "pids.max").write_text(str(getattr(request, "param", 30)))
        except OSError:
            group.rmdir()
            continue
        yield lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()
        return
    pytest.skip("making a control group needs root")


def test_too_few_threads_are_named_before_a_process_starts(workspace, few_threads):
    result = check(workspace, few_threads)
    assert result.returncode == 0 and "too few threads: about" in result.stderr and "pids.max is 30" in result.stderr, result
    result = run(workspace, "few-threads", few_threads)
    assert result.returncode == 3 and "pids.max is 30" in result.stderr and "started" not in result.stderr, result


@pytest.mark.parametrize("few_threads", [6, 10], indirect=True)
def test_a_service_that_cannot_start_its_threads_says_so_in_one_sentence(workspace, few_threads):
    """It ends before it listens, and not by a crash, after which it would be started again."""
    settings = set_flags({"rollout.listen": f"127.0.0.1:{free_port()}"})
    result = subprocess.run([BIN / "dapd-rollout", workspace.config, *settings], capture_output=True, text=True, timeout=120, preexec_fn=few_threads)
    assert result.returncode == 3 and "too few threads: " in result.stderr and "Its stack" not in result.stderr, result

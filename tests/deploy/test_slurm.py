"""Runs the jobs of deploy/slurm with a stand-in for srun and with the real programs."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
from slurm_cluster import BIN, PATIENCE_SECONDS, ROOT, SCRIPT, Cluster
from waiting import wait_for

sys.path.insert(0, str(ROOT / "tests/fakes"))
from hold import Hold  # noqa: E402


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    return Cluster(tmp_path_factory.mktemp("slurm"))


@pytest.fixture
def holds(tmp_path):
    """Releases the processes that a failed test leaves behind."""
    made = Hold(tmp_path / "join"), Hold(tmp_path / "leave")
    yield made
    for hold in made:
        hold.release()


@pytest.fixture(scope="module")
def undisturbed(cluster):
    job = cluster.submit(4100, "--set", "run.name=undisturbed")
    targets = cluster.folder / "job-4100/prometheus.json"
    wait_for(lambda: targets.exists() or job.poll() is not None, "targets")
    cluster.targets = json.loads(targets.read_text()) if targets.exists() else None
    assert job.wait(timeout=PATIENCE_SECONDS) == 0, cluster.output(4100)
    return cluster


def children_of(process):
    text = subprocess.run(["ps", "--ppid", str(process), "-o", "pid=,comm="], capture_output=True, text=True).stdout
    return {name: int(number) for number, name in (line.split(None, 1) for line in text.splitlines())}


def test_a_job_runs_the_three_roles_and_ends(undisturbed):
    steps = {step["step"]: step for step in undisturbed.steps(4100)}
    assert {name: len(step["tasks"]) for name, step in steps.items()} == {"rollout": 2, "teacher": 1, "trainer": 1}
    command = " ".join(steps["trainer"]["command"])
    assert "--set trainer.peer_timeout_seconds=3600" in command, "workers may read their model for longer than the usual 5 minutes"
    assert [(step["gpus"], step["gpu_bind"]) for step in undisturbed.steps(4100)] == [(None, None)] * 3, "without GPUs"
    folder = undisturbed.folder / "job-4100"
    assert f'rollout.addresses="file://{folder}/rollout.addresses"' in command
    assert f"{folder}/rollout.addresses names 2 workers" in undisturbed.output(4100)
    assert not list(folder.glob("*.addresses"))
    assert undisturbed.trained("undisturbed") == 6
    # The workers ended as they should: they were asked, not killed.
    assert "started again" not in undisturbed.output(4100) and "second signal" not in undisturbed.output(4100)
    assert undisturbed.output(4100).count("] stopped\n") == 3
    undisturbed.assert_nothing_runs(4100)


def test_prometheus_finds_every_process_as_long_as_it_is_there(undisturbed):
    targets = undisturbed.targets
    jobs = sorted(entry["labels"]["job"] for entry in targets)
    assert jobs == ["dapd-rollout", "dapd-rollout", "dapd-teacher", "dapd-trainer"]
    assert len({entry["targets"][0] for entry in targets}) == 4
    # Rules and dashboards tell two runs with the same name apart by this label.
    assert {entry["labels"]["namespace"] for entry in targets} == {"job-4100"}
    # Later jobs may get the same addresses, and their metrics do not belong to this job.
    assert not (undisturbed.folder / "job-4100/prometheus.json").exists()


def test_targets_are_json_whatever_the_job_folder_is_called(tmp_path):
    folder = tmp_path / 'a "b"\\c'
    folder.mkdir()
    (folder / "metrics-teacher-0").write_text("node:9\n")
    environment = os.environ | {"SLURM_JOB_ID": "1", "DAPD_JOB_FOLDER": str(folder), "DAPD_ANNOUNCEMENTS": str(folder)}
    subprocess.run(["bash", "-euc", f'source {SCRIPT.parent}/steps.sh; write_targets "$DAPD_JOB_FOLDER/targets"'], env=environment, check=True)
    assert json.loads((folder / "targets").read_text()) == [
        {"targets": ["node:9"], "labels": {"job": "dapd-teacher", "namespace": folder.name}}]


def test_a_worker_that_is_killed_is_started_again_under_its_address(undisturbed):
    job = undisturbed.submit(4101, "--set", "run.name=killed")
    wait_for(lambda: undisturbed.trained("killed") >= 1, lambda: undisturbed.output(4101))
    (rollout,) = (step for step in undisturbed.steps(4101) if step["step"] == "rollout")
    os.kill(children_of(rollout["tasks"][0])["dapd-rollout"], signal.SIGKILL)
    assert job.wait(timeout=PATIENCE_SECONDS) == 0, undisturbed.output(4101)
    assert "rollout 0 ended with code 137; restarting it" in undisturbed.output(4101)
    assert undisturbed.adapter("killed") == undisturbed.adapter("undisturbed")


def test_a_worker_that_is_ended_before_it_is_started_again_ends_well(tmp_path):
    """The stand-in for the pause sends the signal."""
    for name, text in {"dapd-rollout": "exit 9", "sleep": "kill -TERM $PPID"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "DAPD_BIN": str(tmp_path), "DAPD_JOB_FOLDER": str(tmp_path),
                                "DAPD_ANNOUNCEMENTS": str(tmp_path), "SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURMD_NODENAME": "node"}
    command = f"source {SCRIPT.parent}/steps.sh; worker rollout 20000 run.yaml"
    result = subprocess.run(["bash", "-euo", "pipefail", "-c", command], env=environment, capture_output=True, text=True, timeout=60)
    assert "ended with code 9; restarting it" in result.stderr and result.returncode == 0


def keep(folder, role, script, **variables):
    """Returns the output and the announcements of a worker's task whose program is `script`, how often that was started, and each pause."""
    for name, text in {f"dapd-{role}": f"echo >>{folder}/starts\n{script}", "sleep": f'echo "$1" >>{folder}/pauses'}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "DAPD_BIN": str(folder), "DAPD_JOB_FOLDER": str(folder), "DAPD_ANNOUNCEMENTS": str(folder),
                                "DAPD_STEP_LOG": f"{folder}/log", "SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURMD_NODENAME": "node"}
    command = f"source {SCRIPT.parent}/steps.sh; worker {role} 20000 run.yaml"
    result = subprocess.run(["bash", "-euo", "pipefail", "-c", command], env=environment | variables, capture_output=True, text=True, timeout=60)
    pauses = (folder / "pauses").read_text().split() if (folder / "pauses").exists() else []
    return result, len((folder / "starts").read_text().splitlines()), pauses


@pytest.mark.parametrize("signal_name", ["ILL", "SEGV", "BUS", "FPE", "ABRT"])
def test_a_worker_that_crashes_three_times_in_a_row_is_given_up(tmp_path, signal_name):
    result, starts, pauses = keep(tmp_path, "teacher", f"kill -{signal_name} $$")
    assert (result.returncode, starts, pauses) == (1, 3, ["0.200", "0.400"]), result.stderr
    why = r" \(an instruction that its processor lacks\)" if signal_name == "ILL" else ""
    (announced,) = tmp_path.glob("crash-*")
    assert re.fullmatch(rf"teacher 0 crashed by SIG{signal_name}{why}, 3 times in a row with no work done in between; .* {tmp_path}/log-0.log\n",
                        announced.read_text())


def test_a_worker_that_serves_between_its_crashes_or_is_killed_is_started_again(tmp_path):
    served = tmp_path / "served"
    served.mkdir()
    serve = 'echo $(($(cat $DAPD_WORK_MARK || echo 0) + 1)) >$DAPD_WORK_MARK'
    result, starts, pauses = keep(served, "rollout", f"[ $(wc -l <{served}/starts) -lt 9 ] || exit 3\n{serve}\nkill -SEGV $$")
    assert (result.returncode, starts, pauses) == (3, 9, ["0.200"] * 8), result.stderr
    killed = tmp_path / "killed"
    killed.mkdir()
    result, starts, pauses = keep(killed, "rollout", f"[ $(wc -l <{killed}/starts) -lt 9 ] || exit 3\nkill -KILL $$")
    assert (result.returncode, starts) == (3, 9), result.stderr
    assert pauses == ["0.200", "0.400", "0.800", "1.600", "3.200", "6.400", "10.000", "10.000"]
    assert not list(killed.glob("crash-*"))


def programs_with(folder, name, script):
    """Returns the programs with a stand-in for one of them."""
    folder.mkdir()
    for program in BIN.glob("dapd*"):
        if program.name in ("dapd", "dapd-rollout", "dapd-teacher", "dapd-trainer") and program.name != name:
            (folder / program.name).symlink_to(program)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return folder


def test_a_job_whose_teacher_crashes_says_so_at_its_end(cluster, tmp_path):
    programs = programs_with(tmp_path / "bin", "dapd-teacher", "kill -ILL $$")
    job = cluster.submit(4130, "--set", "run.name=crash", DAPD_BIN=str(programs))
    assert job.wait(timeout=PATIENCE_SECONDS) == 1, cluster.output(4130)
    last = (cluster.folder / "4130.out").read_text().splitlines()[-1]
    assert re.match(r"teacher 0 crashed by SIGILL \(an instruction that its processor lacks; it has \w+\), 3 times in a row", last), last
    assert last.endswith(str(cluster.folder / "job-4130/teacher-0.log"))
    assert cluster.queued_again(4130) == []
    cluster.assert_nothing_runs(4130)


def test_a_job_whose_trainer_crashes_says_so_at_its_end(cluster, tmp_path):
    # The script waits until the workers have announced themselves.
    script = ('until [ -e "$DAPD_JOB_FOLDER/prometheus.json" ]; do sleep 0.1; done\n'
              'echo "*** dapd-trainer 0.1 ends by SIGSEGV. Its stack:" >&2\nkill -SEGV $$')
    programs = programs_with(tmp_path / "bin", "dapd-trainer", script)
    job = cluster.submit(4131, "--set", "run.name=crash", DAPD_BIN=str(programs))
    assert job.wait(timeout=PATIENCE_SECONDS) == 1, cluster.output(4131)
    output = (cluster.folder / "4131.out").read_text()
    assert output.count("restarting it; it resumes") == 2, output
    assert output.splitlines()[-1] == ("the trainer crashed by SIGSEGV, 3 times in a row with no work done in between; please report it with its stack, "
                                       f"at the end of {cluster.folder}/job-4131/trainer-0.log")
    cluster.assert_nothing_runs(4131)


def test_before_the_time_limit_the_job_is_queued_again_and_goes_on(undisturbed):
    job = undisturbed.submit(4102, "--set", "run.name=requeued")
    wait_for(lambda: undisturbed.trained("requeued") >= 2, lambda: undisturbed.output(4102))
    job.send_signal(signal.SIGUSR1)
    assert job.wait(timeout=PATIENCE_SECONDS) == 0, undisturbed.output(4102)
    assert undisturbed.queued_again(4102) == ["requeue 4102"]
    assert 2 <= undisturbed.trained("requeued") < 6

    job = undisturbed.submit(4102, "--set", "run.name=requeued")
    assert job.wait(timeout=PATIENCE_SECONDS) == 0, undisturbed.output(4102)
    assert undisturbed.adapter("requeued") == undisturbed.adapter("undisturbed")


def test_a_job_whose_limit_is_shorter_than_the_notice_goes_on_and_is_not_queued_again(undisturbed, holds):
    """If it were queued again, it would be told at its start again and never make progress."""
    join, leave = holds
    run = undisturbed.submit(4114, "--set", "run.name=short",
                             DAPD_FAILPOINTS=f"{join.at('step.after_metrics', 1)};{leave.at('step.after_ledger', 5)}")
    wait_for(lambda: undisturbed.trained("short") >= 1, lambda: undisturbed.output(4114))
    undisturbed.tell_of_short_limit(4114, run)
    joiner = undisturbed.join(4217, 4114, "rollout")
    wait_for(lambda: len(undisturbed.listed(4114, "rollout")) == 3, lambda: undisturbed.output(4217))
    undisturbed.tell_of_short_limit(4217, joiner)
    join.release()
    wait_for(lambda: undisturbed.trained("short") == 4, lambda: undisturbed.output(4114))
    assert joiner.poll() is None and len(undisturbed.listed(4114, "rollout")) == 3
    leave.release()
    assert run.wait(timeout=PATIENCE_SECONDS) == 0, undisturbed.output(4114)
    assert joiner.wait(timeout=60) == 0, undisturbed.output(4217)
    for job in (4114, 4217):
        assert "Slurm announces the end of the job 2" in undisturbed.output(job) and undisturbed.queued_again(job) == []
    assert undisturbed.trained("short") == 6


def test_a_trainer_that_is_killed_resumes(undisturbed):
    job = undisturbed.submit(4103, "--set", "run.name=resumed")
    wait_for(lambda: undisturbed.trained("resumed") >= 2, lambda: undisturbed.output(4103))
    (trainer,) = (step for step in undisturbed.steps(4103) if step["step"] == "trainer")
    os.kill(trainer["tasks"][0], signal.SIGKILL)
    assert job.wait(timeout=PATIENCE_SECONDS) == 0, undisturbed.output(4103)
    assert "the trainer ended with code 137" in undisturbed.output(4103)
    assert undisturbed.adapter("resumed") == undisturbed.adapter("undisturbed")


def test_ranks_of_the_trainer_find_each_other(undisturbed):
    job = undisturbed.submit(4107, "--set", "run.name=ranks", ranks=2, tasks=4)
    assert job.wait(timeout=PATIENCE_SECONDS) == 0, undisturbed.output(4107)
    assert [len(step["tasks"]) for step in undisturbed.steps(4107) if step["step"] == "trainer"] == [2]
    assert undisturbed.trained("ranks") == 6


def test_a_mistake_in_the_configuration_ends_the_job(undisturbed):
    job = undisturbed.submit(4104, "--set", "trainer.batch_sise=3")
    assert job.wait(timeout=PATIENCE_SECONDS) != 0
    assert "unknown key trainer.batch_sise" in undisturbed.output(4104)
    assert re.search("the ((rollout|teacher|trainer) step|workers|trainer) ended", undisturbed.output(4104))
    undisturbed.assert_nothing_runs(4104)


def test_a_cancelled_job_ends_its_steps_and_is_not_queued_again(undisturbed):
    job = undisturbed.submit(4105, "--set", "run.name=cancelled")
    wait_for(lambda: undisturbed.trained("cancelled") >= 1, lambda: undisturbed.output(4105))
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=PATIENCE_SECONDS) == 130, undisturbed.output(4105)
    assert undisturbed.queued_again(4105) == []
    undisturbed.assert_nothing_runs(4105)


def test_ports_follow_from_the_jobs_number():
    """Different ports keep two jobs on a node apart."""
    ports = [subprocess.run(["bash", "-c", ". deploy/slurm/steps.sh && echo $DAPD_FIRST_PORT"], cwd=ROOT, capture_output=True, text=True, check=True,
                            env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": job}).stdout for job in ("4100", "77199")]
    assert ports == ["20000\n", "29900\n"]


def test_too_few_tasks_are_refused(cluster):
    job = cluster.submit(4106, tasks=2)
    assert job.wait(timeout=PATIENCE_SECONDS) == 2
    assert "2 tasks are too few" in cluster.output(4106)


def test_more_tasks_of_a_role_than_a_node_has_ports_for_are_refused(cluster):
    """The tasks of each node are written as Slurm writes them."""
    for job, (nodes, taken) in enumerate((("2(x3),14", False), ("6(x3)", True)), start=4120):
        # The folder of programs is empty: a job that is not refused ends there.
        process = cluster.submit(job, tasks=16, DAPD_TEACHERS="2", SLURM_JOB_NUM_NODES="3", SLURM_TASKS_PER_NODE=nodes, DAPD_BIN=str(cluster.folder))
        assert process.wait(timeout=60) != 0
        assert ("13 tasks of the role rollout may land on one node" in cluster.output(job)) == (not taken), cluster.output(job)
        assert bool(cluster.steps(job)) == taken


def test_the_tasks_are_spread_as_the_plan_recommends(undisturbed):
    plan = subprocess.run([BIN / "dapd", "check", undisturbed.config, "--gpus", "5"], capture_output=True, text=True, check=True).stdout
    recommended = re.search(r"^split .* of 5: ranks (\d+), teachers (\d+), rollouts (\d+);", plan, re.M).groups()
    job = undisturbed.submit(4108, "--set", "run.name=spread", ranks=None, tasks=5)
    assert job.wait(timeout=PATIENCE_SECONDS) == 0, undisturbed.output(4108)
    started = {step["step"]: len(step["tasks"]) for step in undisturbed.steps(4108)}
    print(started)
    assert started == dict(zip(("trainer", "teacher", "rollout"), map(int, recommended)))
    assert undisturbed.trained("spread") == 6


def test_workers_join_a_running_run_and_leave_it(undisturbed, holds):
    # The run waits after its first step until the workers have joined, and in its fifth step until one worker has left.
    join, leave = holds
    run = undisturbed.submit(4110, "--set", "run.name=joined",
                             DAPD_FAILPOINTS=f"{join.at('step.after_metrics', 1)};{leave.at('step.after_ledger', 5)}")
    wait_for(lambda: undisturbed.trained("joined") >= 1, lambda: undisturbed.output(4110))
    joiner = undisturbed.join(4211, 4110, "rollout", tasks=2)
    teacher = undisturbed.join(4212, 4110, "teacher")
    wait_for(lambda: len(undisturbed.listed(4110, "rollout")) == 4 and len(undisturbed.listed(4110, "teacher")) == 2,
             lambda: undisturbed.output(4211) + undisturbed.output(4212))
    assert [line.split("# ")[1] for line in undisturbed.listed(4110, "rollout")] == ["job 4110"] * 2 + ["job 4211"] * 2
    wait_for(lambda: f"{undisturbed.folder}/job-4110/rollout.addresses names 4 workers" in undisturbed.output(4110), lambda: undisturbed.output(4110))
    targets = json.loads((undisturbed.folder / "job-4110/prometheus-4211.json").read_text())
    assert [entry["labels"] for entry in targets] == [{"job": "dapd-rollout", "namespace": "job-4110"}] * 2

    join.release()
    wait_for(lambda: undisturbed.trained("joined") == 4, lambda: undisturbed.output(4110))
    # The time of the joined job is over: it leaves, and the run goes on.
    joiner.send_signal(signal.SIGUSR1)
    assert joiner.wait(timeout=60) == 0, undisturbed.output(4211)
    assert len(undisturbed.listed(4110, "rollout")) == 2
    assert run.poll() is None, "the run outlives the job that joined it"
    undisturbed.assert_nothing_runs(4211)

    leave.release()
    assert run.wait(timeout=PATIENCE_SECONDS) == 0, undisturbed.output(4110)
    # The end of the run ends the jobs that still work for it.
    assert teacher.wait(timeout=60) == 0, undisturbed.output(4212)
    undisturbed.assert_nothing_runs(4212)
    assert not list((undisturbed.folder / "job-4110").glob("prometheus-*.json"))
    assert undisturbed.adapter("joined") == undisturbed.adapter("undisturbed")


def test_workers_of_a_further_teacher_are_a_job_of_their_own(undisturbed):
    model = undisturbed.folder / "big"
    subprocess.run([sys.executable, ROOT / "deploy/make_tiny_model.py", "--output", model, "--seed", "2"], check=True, capture_output=True)
    lists = undisturbed.folder / "job-4117"
    settings = ["--set", "objective.preset=opsd", "--set", "objective.teacher_weights=big",
                "--set", f"teachers=[{{name: big, path: {model}, addresses: [file://{lists}/teacher-big.addresses]}}]"]
    run = undisturbed.submit(4117, "--set", "run.name=taught", *settings, DAPD_FURTHER_TEACHERS="big")
    wait_for(lambda: (lists / "teacher-big.addresses").exists(), lambda: undisturbed.output(4117))
    assert undisturbed.listed(4117, "teacher-big") == []
    teacher = undisturbed.join(4217, 4117, "teacher-big", *settings)
    assert run.wait(timeout=PATIENCE_SECONDS) == 0, undisturbed.output(4117) + undisturbed.output(4217)
    assert teacher.wait(timeout=60) == 0, undisturbed.output(4217)
    undisturbed.assert_nothing_runs(4217)
    assert undisturbed.adapter("taught") != undisturbed.adapter("undisturbed")


def test_who_joined_waits_while_the_run_is_queued_again(undisturbed):
    run = undisturbed.submit(4113, "--set", "run.name=waited")
    wait_for(lambda: undisturbed.trained("waited") >= 1, lambda: undisturbed.output(4113))
    joiner = undisturbed.join(4214, 4113, "rollout")
    wait_for(lambda: len(undisturbed.listed(4113, "rollout")) == 3, lambda: undisturbed.output(4214))
    run.send_signal(signal.SIGUSR1)
    assert run.wait(timeout=PATIENCE_SECONDS) == 0
    if undisturbed.queued_again(4113):
        assert len(undisturbed.listed(4113, "rollout")) == 1 and joiner.poll() is None
        run = undisturbed.submit(4113, "--set", "run.name=waited")
        assert run.wait(timeout=PATIENCE_SECONDS) == 0, undisturbed.output(4113)
    assert joiner.wait(timeout=60) == 0, undisturbed.output(4214)
    assert undisturbed.adapter("waited") == undisturbed.adapter("undisturbed")


def test_workers_of_a_run_that_is_not_there_are_refused(cluster):
    job = cluster.join(4215, 9999, "rollout")
    assert job.wait(timeout=PATIENCE_SECONDS) == 2
    assert "no run accepts rollout workers" in cluster.output(4215)
    job = cluster.join(4216, 9999, "trainer")
    assert job.wait(timeout=PATIENCE_SECONDS) == 2
    assert "usage:" in cluster.output(4216)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="no shellcheck")
def test_shellcheck_has_no_complaint():
    result = subprocess.run(["shellcheck", "-x", *sorted(SCRIPT.parent.iterdir())], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stdout

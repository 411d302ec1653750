"""The jobs of deploy/slurm with a stand-in for srun, and the real programs."""

import hashlib
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys

import pytest
from waiting import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fakes"))
from hold import Hold  # noqa: E402

BIN = pathlib.Path(os.environ.get("DAPD_BIN", ROOT / "build" / "bin"))
SCRIPT = ROOT / "deploy/slurm/dapd.sbatch"
WORKERS = ROOT / "deploy/slurm/workers.sbatch"
PATIENCE_SECONDS = 240


class Cluster:
    """A machine that believes to be a Slurm cluster: srun, scancel and scontrol are stand-ins."""

    def __init__(self, folder):
        self.folder = folder
        self.claims = []
        (folder / "bin").mkdir()
        self.program("srun", f'exec {sys.executable} {ROOT}/tests/deploy/fake_srun.py "$@"')
        # scancel --signal=TERM JOB.STEP reaches the process groups of the step's tasks.
        take = "import json, sys; print(*(-task for task in json.loads(sys.stdin.readlines()[int(sys.argv[1])])['tasks']))"
        self.program("scancel", f'kill -s "${{1#--signal=}}" -- $({sys.executable} -c "{take}" "${{2#*.}}" <"$FAKE_SRUN_LOG")')
        self.program("scontrol", f'echo "$@" >>{folder}/scontrol.log')
        python = [sys.executable, ROOT / "deploy/make_tiny_model.py", "--output", folder / "model"]
        subprocess.run(python, check=True, capture_output=True)
        problems = [BIN / "dapd", "problems", "--task", "unit_conversion", "--split", "train", "--count", "40"]
        subprocess.run([*problems, "--output", folder / "train.jsonl"], check=True, capture_output=True)
        self.config = folder / "run.yaml"
        self.config.write_text(
            f"""
model: {{path: {folder}/model, precision: float32, device: cpu}}
lora: {{rank: 4, alpha: 8}}
data: {{path: {folder}/train.jsonl}}
objective: {{max_reference_tokens: 48}}
rollout: {{max_new_tokens: 16, slots: 4}}
teacher: {{snapshot_interval: 2}}
trainer: {{batch_size: 6, micro_batch_size: 2, steps: 6, schedule_steps: 10, learning_rate: 1.0e-3}}
checkpoint: {{interval: 1}}
run: {{output_dir: {folder}/runs}}
"""
        )

    def program(self, name, text):
        (self.folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.folder / "bin" / name).chmod(0o755)

    def claim_ports(self):
        """The first of 70 that no other job has while the socket lives; those of other tests and of `dapd run` are below."""
        for process, claim in self.claims:
            if process.poll() is not None:
                claim.close()
        while True:
            first = 30000 + 70 * secrets.randbelow(39)
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(f"\0dapd-test-ports-{first}")
                return first, claim
            except OSError:
                claim.close()

    def submit(self, job, *arguments, tasks=4, ranks=1, script=SCRIPT, **variables):
        """As sbatch: starts the script; the last call's output is in FOLDER/JOB.out. Without `ranks` the script chooses."""
        first_port, claim = self.claim_ports()
        environment = os.environ | {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "FAKE_SRUN_LOG": str(self.folder / f"steps-{job}.log"),
            "SLURM_JOB_ID": str(job),
            "SLURM_NTASKS": str(tasks),
            "SLURM_CPUS_PER_TASK": "1",
            "DAPD_BIN": str(BIN),
            "DAPD_JOB_FOLDER": str(self.folder / f"job-{job}"),
            "DAPD_LISTEN_HOST": "127.0.0.1",
            "DAPD_FIRST_PORT": str(first_port),
        } | variables
        if ranks is not None:
            environment["DAPD_RANKS"] = str(ranks)
        arguments = [self.config, *arguments] if script == SCRIPT else arguments
        with open(self.folder / f"{job}.out", "w") as output:
            process = subprocess.Popen(["bash", script, *arguments], env=environment, stdout=output, stderr=output, cwd=ROOT)
        self.claims.append((process, claim))
        return process

    def join(self, job, run, role, *arguments, tasks=1):
        return self.submit(job, self.folder / f"job-{run}", role, self.config, *arguments, tasks=tasks, script=WORKERS)

    def listed(self, run, role):
        """The lines of the list that the trainer reads."""
        path = self.folder / f"job-{run}/{role}.addresses"
        return path.read_text().splitlines() if path.exists() else []

    def steps(self, job):
        log = self.folder / f"steps-{job}.log"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def queued_again(self, job):
        log = self.folder / "scontrol.log"
        return [line for line in log.read_text().splitlines() if str(job) in line] if log.exists() else []

    def assert_nothing_runs(self, job):
        processes = [process for step in self.steps(job) for process in (step["srun"], *step["tasks"])]
        assert processes and not [process for process in processes if pathlib.Path(f"/proc/{process}").exists()]

    def output(self, job):
        logs = sorted((self.folder / f"job-{job}").glob("*.log"))
        return "\n".join(path.read_text() for path in (self.folder / f"{job}.out", *logs))

    def trained(self, name):
        metrics = self.folder / "runs" / name / "metrics.jsonl"
        return len(metrics.read_text().splitlines()) if metrics.exists() else 0

    def adapter(self, name):
        return hashlib.sha256((self.folder / "runs" / name / "adapter/adapter_model.safetensors").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    return Cluster(tmp_path_factory.mktemp("slurm"))


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
    assert [step["gpus"] for step in undisturbed.steps(4100)] == [1, 1, 1]
    folder = undisturbed.folder / "job-4100"
    assert f"rollout.addresses=file://{folder}/rollout.addresses" in command
    assert f"{folder}/rollout.addresses names 2 workers" in undisturbed.output(4100)
    assert not list(folder.glob("*.addresses"))
    assert undisturbed.trained("undisturbed") == 6
    # The workers ended as they should: asked, not killed.
    assert "started again" not in undisturbed.output(4100) and "second signal" not in undisturbed.output(4100)
    assert undisturbed.output(4100).count("] stopped\n") == 3
    undisturbed.assert_nothing_runs(4100)


def test_prometheus_finds_every_process_as_long_as_it_is_there(undisturbed):
    targets = undisturbed.targets
    jobs = sorted(entry["labels"]["job"] for entry in targets)
    assert jobs == ["dapd-rollout", "dapd-rollout", "dapd-teacher", "dapd-trainer"]
    assert len({entry["targets"][0] for entry in targets}) == 4
    # Rules and dashboards tell two runs of one name apart by it.
    assert {entry["labels"]["namespace"] for entry in targets} == {"job-4100"}
    # Addresses come back with later jobs, whose metrics are not this one's.
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
    """The signal comes from what stands in for the pause."""
    for name, text in {"dapd-rollout": "exit 9", "sleep": "kill -TERM $PPID"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "DAPD_BIN": str(tmp_path), "DAPD_JOB_FOLDER": str(tmp_path),
                                "DAPD_ANNOUNCEMENTS": str(tmp_path), "SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURMD_NODENAME": "node"}
    command = f"source {SCRIPT.parent}/steps.sh; worker rollout 20000 run.yaml"
    result = subprocess.run(["bash", "-euo", "pipefail", "-c", command], env=environment, capture_output=True, text=True, timeout=60)
    assert "ended with code 9; restarting it" in result.stderr and result.returncode == 0


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
    assert [(len(step["tasks"]), step["gpu_bind"]) for step in undisturbed.steps(4107) if step["step"] == "trainer"] == [(2, None)], "without GPUs"
    assert undisturbed.trained("ranks") == 6


@pytest.mark.parametrize("job, node, own", [(4123, {}, ["0", "1"]), (4124, {"FAKE_SRUN_BINDS": "1"}, ["0", "0"])], ids=["it is told", "it binds all the same"])
def test_ranks_may_use_the_gpus_of_each_other_and_compute_on_their_own(job, node, own, cluster, tmp_path):
    """NCCL reaches no GPU that a task is not allowed."""
    seen = 'echo "$CUDA_VISIBLE_DEVICES" >"${0%/*}/$SLURM_PROCID"'
    for name, text in (("rollout", "exec sleep 600"), ("teacher", "exec sleep 600"), ("trainer", seen)):
        (tmp_path / f"dapd-{name}").write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / f"dapd-{name}").chmod(0o755)
    process = cluster.submit(job, ranks=2, DAPD_BIN=str(tmp_path), SLURM_GPUS_PER_TASK="1", **node)
    assert process.wait(timeout=60) == 0, cluster.output(job)
    assert {step["step"]: step["gpu_bind"] for step in cluster.steps(job)} == {"rollout": None, "teacher": None, "trainer": "none"}
    assert [(tmp_path / str(rank)).read_text().strip() for rank in (0, 1)] == own


def test_a_mistake_in_the_configuration_ends_the_job(undisturbed):
    job = undisturbed.submit(4104, "--set", "trainer.batch_sise=3")
    assert job.wait(timeout=PATIENCE_SECONDS) != 0
    assert "unknown key trainer.batch_sise" in undisturbed.output(4104)
    assert re.search("the (rollout step|teacher step|workers|trainer) ended", undisturbed.output(4104))
    undisturbed.assert_nothing_runs(4104)


def test_a_cancelled_job_ends_its_steps_and_is_not_queued_again(undisturbed):
    job = undisturbed.submit(4105, "--set", "run.name=cancelled")
    wait_for(lambda: undisturbed.trained("cancelled") >= 1, lambda: undisturbed.output(4105))
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=PATIENCE_SECONDS) == 130, undisturbed.output(4105)
    assert undisturbed.queued_again(4105) == []
    undisturbed.assert_nothing_runs(4105)


def test_ports_follow_from_the_jobs_number():
    """So that two jobs on a node do not meet."""
    ports = [subprocess.run(["bash", "-c", ". deploy/slurm/steps.sh && echo $DAPD_FIRST_PORT"], cwd=ROOT, capture_output=True, text=True, check=True,
                            env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": job}).stdout for job in ("4100", "77199")]
    assert ports == ["20000\n", "29900\n"]


def test_too_few_tasks_are_refused(cluster):
    job = cluster.submit(4106, tasks=2)
    assert job.wait(timeout=PATIENCE_SECONDS) == 2
    assert "2 tasks are too few" in cluster.output(4106)


def test_more_tasks_of_a_role_than_a_node_has_ports_for_are_refused(cluster):
    """As Slurm writes it: how many tasks each node has."""
    for job, (nodes, taken) in enumerate((("2(x3),14", False), ("5(x3)", True)), start=4120):
        # A programs folder without programs: what is not refused ends there.
        process = cluster.submit(job, tasks=16, DAPD_TEACHERS="2", SLURM_TASKS_PER_NODE=nodes, DAPD_BIN=str(cluster.folder))
        assert process.wait(timeout=60) != 0
        assert ("13 tasks of the role rollout may land on one node" in cluster.output(job)) == (not taken), cluster.output(job)
        assert bool(cluster.steps(job)) == taken


def test_a_rollout_worker_of_several_gpus_takes_as_many_tasks(undisturbed):
    settings = ("--set", "rollout.tensor_parallel=2")
    plan = subprocess.run([BIN / "dapd", "check", undisturbed.config, "--gpus", "6", *settings], capture_output=True, text=True, check=True).stdout
    split = re.search(r"^split .* of 6: ranks (\d+), teachers (\d+), rollouts (\d+);.*; 2 devices a rollout worker$", plan, re.M)
    ranks, teachers, rollouts = map(int, split.groups())
    assert ranks + teachers + 2 * rollouts == 6
    for job, variables in ((4121, {"ranks": None}), (4122, {"ranks": ranks, "DAPD_TEACHERS": str(teachers), "DAPD_ROLLOUT_GPUS": "2"})):
        process = undisturbed.submit(job, "--set", f"run.name=wide-{job}", *settings, tasks=6, **variables)
        assert process.wait(timeout=PATIENCE_SECONDS) == 0, undisturbed.output(job)
        steps = {step["step"]: (len(step["tasks"]), step["gpus"]) for step in undisturbed.steps(job)}
        assert steps == {"trainer": (ranks, 1), "teacher": (teachers, 1), "rollout": (rollouts, 2)}


def test_the_tasks_are_spread_as_the_plan_recommends(undisturbed):
    plan = subprocess.run([BIN / "dapd", "check", undisturbed.config, "--gpus", "5"], capture_output=True, text=True, check=True).stdout
    recommended = re.search(r"^split .* of 5: ranks (\d+), teachers (\d+), rollouts (\d+);", plan, re.M).groups()
    job = undisturbed.submit(4108, "--set", "run.name=spread", ranks=None, tasks=5)
    assert job.wait(timeout=PATIENCE_SECONDS) == 0, undisturbed.output(4108)
    started = {step["step"]: len(step["tasks"]) for step in undisturbed.steps(4108)}
    print(started)
    assert started == dict(zip(("trainer", "teacher", "rollout"), map(int, recommended)))
    assert undisturbed.trained("spread") == 6


@pytest.fixture
def holds(tmp_path):
    """What a failed test leaves behind does not wait for ever."""
    made = Hold(tmp_path / "join"), Hold(tmp_path / "leave")
    yield made
    for hold in made:
        hold.release()


def test_workers_join_a_running_run_and_leave_it(undisturbed, holds):
    # It waits behind its first step until they have come, and in its fifth until one has left.
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
    # Its time is over: it leaves, the run goes on.
    joiner.send_signal(signal.SIGUSR1)
    assert joiner.wait(timeout=60) == 0, undisturbed.output(4211)
    assert len(undisturbed.listed(4110, "rollout")) == 2
    assert run.poll() is None, "the run outlives the job that joined it"
    undisturbed.assert_nothing_runs(4211)

    leave.release()
    assert run.wait(timeout=PATIENCE_SECONDS) == 0, undisturbed.output(4110)
    # The end of the run is the end of who still works for it.
    assert teacher.wait(timeout=60) == 0, undisturbed.output(4212)
    undisturbed.assert_nothing_runs(4212)
    assert not list((undisturbed.folder / "job-4110").glob("prometheus-*.json"))
    assert undisturbed.adapter("joined") == undisturbed.adapter("undisturbed")


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

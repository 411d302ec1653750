"""Tests on which nodes the steps of deploy/slurm run, which GPUs their tasks see, and what happens to a step for which there is no room, or
to a job that has to make room."""

import os
import re
import signal
import subprocess

import pytest
from slurm_cluster import BIN, PATIENCE_SECONDS, WORKERS, Cluster
from waiting import wait_for

ENDS_WHEN_ASKED = "trap 'exit 130' TERM; while :; do sleep 600 & wait; done"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    return Cluster(tmp_path_factory.mktemp("slurm"))


@pytest.fixture
def programs(tmp_path):
    """Returns a folder with stand-ins: workers wait, and a rank writes which GPU it computes on and ends."""
    seen = 'echo "$CUDA_VISIBLE_DEVICES" >"${0%/*}/$SLURM_PROCID"'
    # The job writes prometheus.json once it has the addresses of all three programs.
    for name, text in (("rollout", "exec sleep 600"), ("teacher", "exec sleep 600"), ("trainer", f"{seen}; until [ -e $DAPD_JOB_FOLDER/prometheus.json ]; do sleep 0.1; done")):
        write_program(tmp_path, name, text)
    return tmp_path


def write_program(folder, name, text):
    (folder / f"dapd-{name}").write_text(f"#!/bin/sh\n{text}\n")
    (folder / f"dapd-{name}").chmod(0o755)


@pytest.mark.parametrize("job, node, own", [(4123, {}, ["0", "1"]), (4124, {"FAKE_SRUN_BIND": "own"}, ["0", "0"])], ids=["it is told", "it binds each to one"])
def test_ranks_may_use_the_gpus_of_each_other_and_compute_on_their_own(job, node, own, cluster, programs):
    """NCCL reaches only the GPUs that a task may use."""
    process = cluster.submit(job, ranks=2, gpus=True, DAPD_BIN=str(programs), **node)
    assert process.wait(timeout=60) == 0, cluster.output(job)
    assert {step["step"]: step["gpu_bind"] for step in cluster.steps(job)} == {"rollout": None, "teacher": None, "trainer": "mask_gpu:0xf"}
    assert [(programs / str(rank)).read_text().strip() for rank in (0, 1)] == own


def test_ranks_find_their_gpus_among_a_nodes_last(cluster, programs):
    process = cluster.submit(4125, ranks=2, gpus=True, DAPD_BIN=str(programs), SLURM_JOB_GPUS="4,5,6,7")
    assert process.wait(timeout=60) == 0, cluster.output(4125)
    assert [step["gpu_bind"] for step in cluster.steps(4125) if step["step"] == "trainer"] == ["mask_gpu:0xff"]


def test_a_rank_that_is_not_told_its_gpu_takes_none(cluster, programs):
    """Otherwise all ranks of a node would take its first GPU."""
    process = cluster.submit(4126, ranks=2, gpus=True, DAPD_BIN=str(programs), FAKE_SRUN_BIND="none")
    assert process.wait(timeout=60) == 2
    assert "the GPU of rank 1 is unclear" in cluster.output(4126)
    assert not (programs / "0").exists()


def test_more_tasks_than_gpus_are_refused(cluster):
    process = cluster.submit(4127, tasks=16, nodes=2, gpus=True, SLURM_GPUS_ON_NODE="4")
    assert process.wait(timeout=60) == 2
    assert "a node has 8 tasks and 4 GPUs" in cluster.output(4127) and not cluster.steps(4127)


def test_a_rollout_worker_of_several_gpus_takes_as_many_tasks(cluster):
    settings = ("--set", "rollout.tensor_parallel=2")
    plan = subprocess.run([BIN / "dapd", "check", cluster.config, "--gpus", "6", *settings], capture_output=True, text=True, check=True).stdout
    split = re.search(r"^split .* of 6: ranks (\d+), teachers (\d+), rollouts (\d+);.*; 2 devices a rollout worker$", plan, re.M)
    ranks, teachers, rollouts = map(int, split.groups())
    assert ranks + teachers + 2 * rollouts == 6
    for job, variables in ((4121, {"ranks": None}), (4122, {"ranks": ranks, "DAPD_TEACHERS": str(teachers), "DAPD_ROLLOUT_GPUS": "2"})):
        process = cluster.submit(job, "--set", f"run.name=wide-{job}", *settings, tasks=6, gpus=True, **variables)
        assert process.wait(timeout=PATIENCE_SECONDS) == 0, cluster.output(job)
        steps = {step["step"]: (len(step["tasks"]), step["gpus"]) for step in cluster.steps(job)}
        assert steps == {"trainer": (ranks, 1), "teacher": (teachers, 1), "rollout": (rollouts, 2)}


# Prints a split as `dapd check` does for a cluster with GPUs: the rollout worker has eight GPUs, or the number in rollout.tensor_parallel.
RECOMMENDS = """case "$*" in
  *tensor_parallel=*) width=${*##*tensor_parallel=}; echo "split of 16: ranks 4, teachers $((12 - width)), rollouts 1; 9 s a step; $width devices a rollout worker" ;;
  *) echo "split of 16: ranks 4, teachers 4, rollouts 1; 8 s a step; 8 devices a rollout worker" ;;
esac"""


@pytest.mark.parametrize("job, nodes, width", [(4145, 2, 8), (4146, 4, 4)], ids=["a node has as many", "a node has fewer"])
def test_a_worker_gets_the_gpus_that_are_recommended_as_far_as_a_node_has_them(job, nodes, width, cluster, programs):
    write_program(programs, "check", RECOMMENDS)
    (programs / "dapd-check").rename(programs / "dapd")
    write_program(programs, "rollout", 'echo "$@" >"${0%/*}/worker"; exec sleep 600')
    process = cluster.submit(job, tasks=16, nodes=nodes, gpus=True, ranks=None, DAPD_BIN=str(programs))
    assert process.wait(timeout=60) == 0, cluster.output(job)
    steps = {step["step"]: (len(step["tasks"]), step["gpus"]) for step in cluster.steps(job)}
    assert steps == {"trainer": (4, 1), "teacher": (12 - width, 1), "rollout": (1, width)}
    assert f"--set rollout.tensor_parallel={width}" in (programs / "worker").read_text()


def test_a_job_runs_on_small_nodes(cluster):
    process = cluster.submit(4128, "--set", "run.name=small", nodes=2, ranks=2, gpus=True)
    assert process.wait(timeout=PATIENCE_SECONDS) == 0, cluster.output(4128)
    assert {step["step"]: step["nodes"] for step in cluster.steps(4128)} == {"trainer": [0, 0], "rollout": [1], "teacher": [1]}
    assert cluster.trained("small") == 6


@pytest.mark.parametrize("job, ranks, trainer, rollout, teacher", [(4129, 3, [0] * 3, [1], [0, 1]), (4130, 4, [0] * 4, [1], [1, 1]), (4131, 5, [0] * 4 + [1], [1], [1])])
def test_the_ranks_are_on_as_few_nodes_as_can_be_and_leave_room_for_wide_workers(job, ranks, trainer, rollout, teacher, cluster, programs):
    process = cluster.submit(job, tasks=8, nodes=2, gpus=True, ranks=ranks, DAPD_BIN=str(programs), DAPD_TEACHERS=str(len(teacher)), DAPD_ROLLOUT_GPUS="2")
    assert process.wait(timeout=60) == 0, cluster.output(job)
    assert {step["step"]: step["nodes"] for step in cluster.steps(job)} == {"trainer": trainer, "rollout": rollout, "teacher": teacher}


@pytest.mark.parametrize("job, places, started", [(4132, "1", []), (4133, "3", ["trainer", "rollout"])], ids=["the trainer's", "a worker's"])
def test_a_job_whose_step_waits_for_room_ends_at_a_signal(job, places, started, cluster, programs):
    write_program(programs, "trainer", ENDS_WHEN_ASKED)
    for how, code, again in ((signal.SIGTERM, {1, 130}, []), (signal.SIGUSR1, {0}, [f"requeue {job}"])):
        (cluster.folder / f"steps-{job}.log").unlink(missing_ok=True)
        process = cluster.submit(job, ranks=2, gpus=True, SLURM_TASKS_PER_NODE=places, DAPD_BIN=str(programs))
        wait_for(lambda: "Requested nodes are busy" in cluster.output(job), lambda: cluster.output(job))
        assert [step["step"] for step in cluster.steps(job)] == started
        process.send_signal(how)
        assert process.wait(timeout=60) in code, cluster.output(job)
        assert cluster.queued_again(job) == again


def test_a_step_that_waits_long_for_room_is_named(tmp_path):
    """The stand-in for the pause ends the wait."""
    (tmp_path / "step-trainer").touch()
    environment = os.environ | {"DAPD_JOB_FOLDER": str(tmp_path), "DAPD_ANNOUNCEMENTS": str(tmp_path), "SLURM_JOB_ID": "1"}
    for looks, named in ((298, 0), (400, 1)):
        command = f"""source {WORKERS.parent}/steps.sh; process=([trainer]=$$ [teacher]=$$)
            sleep() {{ if [ "$looks" -eq {looks} ]; then ending=stop; fi; }}; ! join_run teacher 1"""
        result = subprocess.run(["bash", "-euc", command], env=environment, capture_output=True, text=True, timeout=60)
        assert result.returncode == 0 and result.stderr.count("step has waited a minute") == result.stderr.count("the teacher step has") == named


def test_workers_that_wait_for_room_end_at_a_signal(cluster, programs):
    (cluster.folder / "job-4134").mkdir()
    (cluster.folder / "job-4134/teacher.addresses").touch()
    process = cluster.submit(4217, cluster.folder / "job-4134", "teacher", cluster.config, tasks=2, script=WORKERS, SLURM_TASKS_PER_NODE="1", DAPD_BIN=str(programs))
    wait_for(lambda: "Requested nodes are busy" in cluster.output(4217), lambda: cluster.output(4217))
    process.send_signal(signal.SIGUSR1)
    assert process.wait(timeout=60) == 0, cluster.output(4217)


@pytest.mark.parametrize("job, asked", [(4139, {"SLURM_GPUS": "4"}), (4140, {"SLURM_NTASKS_PER_GPU": "1"}), (4141, {"SLURM_EXPORT_ENV": "NONE"})],
                         ids=["--gpus", "--ntasks-per-gpu", "--export"])
def test_steps_take_over_nothing_that_is_the_jobs_alone(job, asked, cluster, programs):
    process = cluster.submit(job, gpus=True, DAPD_BIN=str(programs), **asked)
    assert process.wait(timeout=60) == 0, cluster.output(job)


def test_steps_share_the_memory_of_a_node(cluster, programs):
    """The job asks for memory by the node (--mem)."""
    process = cluster.submit(4137, DAPD_BIN=str(programs), SLURM_MEM_PER_NODE="6144")
    assert process.wait(timeout=60) == 0, cluster.output(4137)


def test_a_run_that_makes_room_for_another_job_is_queued_again(cluster, programs):
    write_program(programs, "trainer", ENDS_WHEN_ASKED)
    process = cluster.submit(4135, DAPD_BIN=str(programs))
    wait_for((cluster.folder / "job-4135/prometheus.json").exists, lambda: cluster.output(4135))
    cluster.preempt(4135)
    assert process.wait(timeout=60) == 0, cluster.output(4135)
    assert cluster.queued_again(4135) == ["requeue 4135"]
    # Workers that joined wait for the job's next start.
    assert cluster.listed(4135, "rollout") == [] and (cluster.folder / "job-4135/rollout.addresses").exists()


def test_a_run_that_makes_room_before_its_workers_serve_is_queued_again(cluster, programs):
    write_program(programs, "trainer", ENDS_WHEN_ASKED)
    process = cluster.submit(4138, DAPD_BIN=str(programs), SLURM_TASKS_PER_NODE="2")
    wait_for(lambda: "Requested nodes are busy" in cluster.output(4138), lambda: cluster.output(4138))
    cluster.preempt(4138)
    assert process.wait(timeout=60) == 0, cluster.output(4138)
    assert cluster.queued_again(4138) == ["requeue 4138"]


def test_a_task_of_an_array_queues_itself_again_and_not_the_array(cluster, programs):
    """The array's last task has the array's number."""
    write_program(programs, "trainer", ENDS_WHEN_ASKED)
    process = cluster.submit(4142, DAPD_BIN=str(programs), SLURM_ARRAY_JOB_ID="4142", SLURM_ARRAY_TASK_ID="7")
    wait_for((cluster.folder / "job-4142/prometheus.json").exists, lambda: cluster.output(4142))
    process.send_signal(signal.SIGUSR1)
    assert process.wait(timeout=60) == 0, cluster.output(4142)
    assert cluster.queued_again(4142) == ["requeue 4142_7"]


def test_workers_that_make_room_for_another_job_are_queued_again(cluster, programs):
    (cluster.folder / "job-4136").mkdir()
    (cluster.folder / "job-4136/rollout.addresses").touch()
    process = cluster.submit(4218, cluster.folder / "job-4136", "rollout", cluster.config, tasks=2, script=WORKERS, DAPD_BIN=str(programs))
    wait_for(lambda: len(cluster.listed(4136, "rollout")) == 2, lambda: cluster.output(4218))
    cluster.preempt(4218)
    assert process.wait(timeout=60) == 0, cluster.output(4218)
    assert cluster.queued_again(4218) == ["requeue 4218"] and cluster.listed(4136, "rollout") == []

"""A stand-in for Slurm's srun on one machine: it starts the tasks of a step with the variables that Slurm sets.

Like srun, it gives each task its own process group, kills the tasks at SIGTERM, ends with the highest exit code of the tasks, and replaces
%t in --output by the task's number. It writes every call as a line to FAKE_SRUN_LOG; a step's number is the number of its line.

All nodes of the job (SLURM_TASKS_PER_NODE) are this machine, but a step gets only the places that running steps leave, and waits for them,
as srun of Slurm 22.05 was seen to do: without --nodes a step needs every node of the job; without `pack` it spreads over as many nodes as
--nodes allows. In a job with GPUs (SLURM_JOB_GPUS; one GPU for each task of a node) a task sees its own GPUs, counted from 0; with
--gpu-bind=mask_gpu it sees the GPUs of the whole step on its node; with --gpu-bind=none the variable is not set. FAKE_SRUN_BIND is the
node's binding, whatever --gpu-bind says.
"""

import argparse
import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--exact", action="store_true", required=True)
    parser.add_argument("--ntasks", type=int, required=True)
    parser.add_argument("--job-name", required=True)
    parser.add_argument("--nodes", default=f"{os.environ['SLURM_JOB_NUM_NODES']}-{os.environ['SLURM_JOB_NUM_NODES']}")
    parser.add_argument("--distribution", default="block")
    parser.add_argument("--gpus-per-task", type=int)
    parser.add_argument("--gpu-bind")
    parser.add_argument("--kill-on-bad-exit", type=int)
    parser.add_argument("--output", required=True)
    parser.add_argument("--open-mode", choices=["append", "truncate"], default="truncate")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    check_gpus(options)
    if int(os.environ.get("SLURM_MEM_PER_NODE", 0)):
        sys.exit("fake_srun: this step would take all memory of its nodes, for which the next one would wait")
    if taken_over := {"SLURM_GPUS", "SLURM_NTASKS_PER_GPU", "SLURM_EXPORT_ENV"} & os.environ.keys():
        sys.exit(f"fake_srun: this step would wait for GPUs, be refused or start without an environment: {taken_over}")
    tasks = []

    def end(*_):
        if not tasks:
            sys.exit("srun: Cancelled pending job step with signal 15")
        for task in tasks:
            task.kill()

    signal.signal(signal.SIGTERM, end)
    if not begin(options, tasks):
        print(f"srun: Job {os.environ['SLURM_JOB_ID']} step creation temporarily disabled, retrying (Requested nodes are busy)", file=sys.stderr, flush=True)
        while not begin(options, tasks):
            time.sleep(0.1)
    codes = [task.wait() for task in tasks]
    # A task that ended by a signal has the code that a shell gives it.
    sys.exit(max(code if code >= 0 else 128 - code for code in codes))


def check_gpus(options):
    of_job = os.environ.get("SLURM_GPUS_PER_TASK")
    if "SLURM_JOB_GPUS" not in os.environ:
        if options.gpus_per_task:
            sys.exit("srun: error: Unable to create step: Invalid generic resource (gres) specification")
        return
    if options.gpus_per_task is None and of_job:
        options.gpus_per_task = int(of_job)
    if options.gpus_per_task is None or "SLURM_GPUS_PER_NODE" in os.environ:
        sys.exit("fake_srun: this step would take all GPUs of its nodes, for which the next one would wait")
    if of_job and options.gpus_per_task > int(of_job):
        sys.exit(f"srun: error: Step requested gres_per_task=gpu:{options.gpus_per_task} is more than the job's gres_per_task=gpu:{of_job}")


def begin(options, tasks):
    """Starts the tasks if there is room for all of them."""
    with pathlib.Path(os.environ["FAKE_SRUN_LOG"]).open("a+") as lines:
        # Several steps may start at the same time.
        fcntl.flock(lines, fcntl.LOCK_EX)
        lines.seek(0)
        steps = [json.loads(line) for line in lines]
        nodes = place(options, [step for step in steps if pathlib.Path(f"/proc/{step['srun']}").exists()])
        if not nodes:
            return False
        start(options, len(steps), nodes, tasks)
        record = {"step": options.job_name, "srun": os.getpid(), "tasks": [task.pid for task in tasks], "nodes": nodes, "command": options.command,
                  "gpus": options.gpus_per_task, "gpu_bind": options.gpu_bind}
        lines.write(json.dumps(record) + "\n")
    return True


def place(options, running):
    """Returns the node of each task, counted from 0; returns no nodes if the tasks do not fit beside the running steps."""
    # Slurm writes it like this: 2(x3),14.
    counts = re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ["SLURM_TASKS_PER_NODE"])
    room = [int(tasks) for tasks, nodes in counts for _ in range(int(nodes or 1))]
    for step in running:
        for node in step["nodes"]:
            room[node] -= step["gpus"] or 1
    fit = [left // (options.gpus_per_task or 1) for left in room]
    least, most = map(int, options.nodes.split("-"))
    usable = [node for node, tasks in enumerate(fit) if tasks > 0][:most]
    nodes = usable[: min(least, options.ntasks)]
    if len(nodes) < min(least, options.ntasks):
        return []
    while len(nodes) < options.ntasks:
        left = [node for node in usable if nodes.count(node) < fit[node]]
        if not left:
            return []
        nodes.append(left[0] if options.distribution.endswith(",pack") else min(left, key=nodes.count))
    return sorted(nodes)


def start(options, step, nodes, tasks):
    for number, node in enumerate(nodes):
        variables = os.environ | {
            "SLURM_STEP_ID": str(step),
            "SLURM_NTASKS": str(options.ntasks),
            "SLURM_PROCID": str(number),
            "SLURM_LOCALID": str(nodes[:number].count(node)),
            "SLURMD_NODENAME": "127.0.0.1",
        }
        variables.pop("CUDA_VISIBLE_DEVICES", None)
        if options.gpus_per_task:
            variables |= visible_gpus(options, nodes.count(node))
        with open(options.output.replace("%t", str(number)), "a" if options.open_mode == "append" else "w") as output:
            tasks.append(subprocess.Popen(options.command, env=variables, stdout=output, stderr=output, process_group=0))


def visible_gpus(options, tasks_here):
    bind = os.environ.get("FAKE_SRUN_BIND", options.gpu_bind or "own")
    if bind == "none":
        return {}
    gpus = range(options.gpus_per_task)
    if bind.startswith("mask_gpu:"):
        mask = int(bind.removeprefix("mask_gpu:"), 16)
        # From a mask with more bits than the node has GPUs, Slurm makes the node's first GPU.
        of_node = int(os.environ["SLURM_JOB_GPUS"].split(",")[-1]) + 1
        gpus = [gpu for gpu in range(options.gpus_per_task * tasks_here) if mask >> gpu & 1] if mask.bit_length() <= of_node else [0]
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))}


if __name__ == "__main__":
    main()

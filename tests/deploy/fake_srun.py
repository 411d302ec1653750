"""A stand-in for Slurm's srun on one machine: starts the tasks of a step with the variables that Slurm gives them.

As srun does: a task leads a process group of its own, SIGTERM kills the tasks, the exit code is the highest of the tasks', %t in --output is the task's number. Every
call is written to FAKE_SRUN_LOG; the number of a step is that of its line there. In a job with GPUs (SLURM_GPUS_PER_TASK) a task sees its own, counted from 0, and those
of the whole step with --gpu-bind=none, unless the node binds them all the same (FAKE_SRUN_BINDS).
"""

import argparse
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--exact", action="store_true", required=True)
    parser.add_argument("--ntasks", type=int, required=True)
    parser.add_argument("--job-name", required=True)
    parser.add_argument("--gpus-per-task", type=int, default=1)
    parser.add_argument("--gpu-bind", choices=["none"])
    parser.add_argument("--kill-on-bad-exit", type=int)
    parser.add_argument("--output", required=True)
    parser.add_argument("--open-mode", choices=["append", "truncate"], default="truncate")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    log = pathlib.Path(os.environ["FAKE_SRUN_LOG"])
    with log.open("a+") as lines:
        # Steps start at the same time.
        fcntl.flock(lines, fcntl.LOCK_EX)
        lines.seek(0)
        step = len(lines.readlines())
        tasks = start(options, step)
        record = {"step": options.job_name, "srun": os.getpid(), "tasks": [task.pid for task in tasks], "command": options.command,
                  "gpus": options.gpus_per_task, "gpu_bind": options.gpu_bind}
        lines.write(json.dumps(record) + "\n")
    signal.signal(signal.SIGTERM, lambda *_: [task.kill() for task in tasks])
    codes = [task.wait() for task in tasks]
    # A task that a signal ended counts as a shell counts it.
    sys.exit(max(code if code >= 0 else 128 - code for code in codes))


def start(options, step):
    tasks = []
    gpus = {}
    if "SLURM_GPUS_PER_TASK" in os.environ:
        shares = options.gpu_bind == "none" and "FAKE_SRUN_BINDS" not in os.environ
        seen = options.gpus_per_task * (options.ntasks if shares else 1)
        gpus["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(seen)))
    for number in range(options.ntasks):
        variables = {
            "SLURM_STEP_ID": str(step),
            "SLURM_NTASKS": str(options.ntasks),
            "SLURM_PROCID": str(number),
            "SLURM_LOCALID": str(number),
            "SLURMD_NODENAME": "127.0.0.1",
        }
        with open(options.output.replace("%t", str(number)), "a" if options.open_mode == "append" else "w") as output:
            tasks.append(subprocess.Popen(options.command, env=os.environ | gpus | variables, stdout=output, stderr=output, process_group=0))
    return tasks


if __name__ == "__main__":
    main()

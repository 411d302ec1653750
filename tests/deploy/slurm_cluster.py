"""A machine that looks like a Slurm cluster to the jobs of deploy/slurm."""

import datetime
import hashlib
import json
import os
import pathlib
import secrets
import signal
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("DAPD_BIN", ROOT / "build" / "bin"))
SCRIPT = ROOT / "deploy/slurm/dapd.sbatch"
WORKERS = ROOT / "deploy/slurm/workers.sbatch"
PATIENCE_SECONDS = 240


class Cluster:
    """A cluster whose srun, scancel and scontrol are stand-ins."""

    def __init__(self, folder):
        self.folder = folder
        self.claims = []
        (folder / "bin").mkdir()
        self.program("srun", f'exec {sys.executable} {ROOT}/tests/deploy/fake_srun.py "$@"')
        # scancel --signal=TERM JOB.STEP reaches the process groups of the step's tasks.
        take = "import json, sys; print(*(-task for task in json.loads(sys.stdin.readlines()[int(sys.argv[1])])['tasks']))"
        self.program("scancel", f'kill -s "${{1#--signal=}}" -- $({sys.executable} -c "{take}" "${{2#*.}}" <"$FAKE_SRUN_LOG")')
        self.program("scontrol", f'if [ "$1" = show ]; then cat {folder}/state-$3; else echo "$@" >>{folder}/scontrol.log; fi')
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
        """Returns the first of 70 ports that no other job has while the socket lives; the ports of other tests and of `dapd run` are
        lower."""
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

    def submit(self, job, *arguments, tasks=4, nodes=1, gpus=False, ranks=1, script=SCRIPT, **variables):
        """Starts the script as sbatch does; the output of the last call is in FOLDER/JOB.out. Without `ranks` the script chooses their
        number."""
        here = tasks // nodes
        first_port, claim = self.claim_ports()
        (self.folder / f"state-{job}").write_text("   PreemptEligibleTime=2026-11-27T08:00:00 PreemptTime=None\n")
        environment = os.environ | {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "FAKE_SRUN_LOG": str(self.folder / f"steps-{job}.log"),
            "SLURM_JOB_ID": str(job),
            "SLURM_NTASKS": str(tasks),
            "SLURM_JOB_NUM_NODES": str(nodes),
            "SLURM_TASKS_PER_NODE": f"{here}(x{nodes})",
            "SLURM_CPUS_PER_TASK": "1",
            "DAPD_BIN": str(BIN),
            "DAPD_JOB_FOLDER": str(self.folder / f"job-{job}"),
            "DAPD_LISTEN_HOST": "127.0.0.1",
            "DAPD_FIRST_PORT": str(first_port),
        }
        if gpus:
            environment |= {"SLURM_JOB_GPUS": ",".join(map(str, range(here))), "SLURM_GPUS_ON_NODE": str(here)}
            # These are the GPUs that the script's header asks for.
            environment |= {"SLURM_GPUS_PER_TASK": "1"} if "#SBATCH --gpus-per-task" in script.read_text() else {"SLURM_GPUS_PER_NODE": str(here)}
        environment |= variables
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
        """Returns the lines of the list that the trainer reads."""
        path = self.folder / f"job-{run}/{role}.addresses"
        return path.read_text().splitlines() if path.exists() else []

    def tell_of_short_limit(self, job, process):
        """Signals the job half a minute after its start, as Slurm was seen to do if a job's limit is shorter than the notice."""
        with open(self.folder / f"state-{job}", "a") as state:
            start = datetime.datetime.now() - datetime.timedelta(seconds=20)
            state.write(f"   StartTime={start:%Y-%m-%dT%H:%M:%S} EndTime=Unknown Deadline=N/A\n")
        process.send_signal(signal.SIGUSR1)

    def steps(self, job):
        log = self.folder / f"steps-{job}.log"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def queued_again(self, job):
        log = self.folder / "scontrol.log"
        return [line for line in log.read_text().splitlines() if str(job) in line] if log.exists() else []

    def preempt(self, job):
        """Signals the steps but not the job, as Slurm was seen to do if a partition has a GraceTime."""
        (self.folder / f"state-{job}").write_text("   PreemptEligibleTime=2026-11-27T08:00:00 PreemptTime=2026-11-27T08:02:57\n")
        for step in self.steps(job):
            for task in step["tasks"]:
                os.killpg(task, signal.SIGTERM)

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

"""C10: 200 steps in which every service is killed once and started again: nothing is lost, steps get no slower, memory does not grow.

The model learns, so its answers and a step's work change. The time is therefore compared with a copy of the run: processes that have just
started do the last steps once more, the same steps bit for bit.
"""

import os
import pathlib
import shutil
import signal
import statistics
import sys
import tempfile

from duel import ROOT, Row, proportional_mib

sys.path[:0] = [str(ROOT / "tests/fakes"), str(ROOT / "tests/robustness")]
import history  # noqa: E402
from cluster import Cluster  # noqa: E402
from workspace import Workspace, wait_for  # noqa: E402

STEPS, BATCH, INTERVAL = 200, 4, 20
# After these steps the services are killed; then the run is copied; then its last steps are compared with the copy's last steps.
KILLS = {50: "rollout", 80: "teacher", 110: "trainer"}
COPY = 150
# Memory goes up and down within a step, so medians of several looks are compared, at processes that have run for a while.
LOOKS = (120, 125, 130, 135, 140), (180, 184, 188, 192, 196)
WINDOW = range(165, 200)


class Soak:
    def __init__(self, folder):
        self.workspace = Workspace(folder)
        self.cluster = Cluster(self.workspace, rollouts=1).start()
        self.settings = {"trainer.steps": STEPS, "trainer.schedule_steps": STEPS, "trainer.batch_size": BATCH, "checkpoint.interval": INTERVAL,
                         "checkpoint.keep": 2, "teacher.snapshot_interval": 5, "evaluation.path": '""'}
        self.memory = {}  # MiB of each role, by step

    def pids(self):
        return {"rollout": self.cluster.rollouts[0].process.pid, "teacher": self.cluster.teachers[0].process.pid, "trainer": self.trainer.pid}

    def wait_for_step(self, step):
        wait_for(lambda: len(self.workspace.metrics("soak")) >= step or self.trainer.poll() is not None, seconds=900, what=f"step {step}")

    def start_trainer(self, name):
        self.trainer = self.cluster.start_trainer(name, **self.settings)

    def finish(self, name):
        if self.trainer.wait(timeout=900):
            sys.exit(self.cluster.log(name))

    def run(self):
        self.start_trainer("soak")
        for step in sorted({*KILLS, COPY, *LOOKS[0], *LOOKS[1]}):
            self.wait_for_step(step)
            if self.trainer.poll() is not None:
                sys.exit(self.cluster.log("soak"))
            if step == COPY:
                shutil.copytree(self.workspace.runs("soak"), self.workspace.runs("fresh"))
            elif step not in KILLS:
                self.memory[step] = {role: proportional_mib(pid) for role, pid in self.pids().items()}
            elif KILLS[step] == "trainer":
                self.trainer.send_signal(signal.SIGKILL)
                self.trainer.wait()
                self.start_trainer("soak")
            else:
                service = next(s for s in self.cluster.services if s.role == KILLS[step])
                service.kill()
                service.start()
        self.finish("soak")

    def run_afresh(self):
        self.cluster.stop()
        self.cluster.start()
        self.start_trainer("fresh")
        self.finish("fresh")


def main():
    row = Row("C10", f"{STEPS} steps of {BATCH} problems, each service killed once and started again")
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        soak = Soak(pathlib.Path(name))
        try:
            soak.run()
            soak.run_afresh()
        finally:
            soak.cluster.stop()
        seen = history.check(soak.workspace.runs("soak") / "ledger.jsonl", BATCH, STEPS)
        lines, fresh = soak.workspace.metrics("soak"), {line["step"]: line for line in soak.workspace.metrics("fresh")}
    steps = {line["step"]: line for line in lines}
    row.check("steps missing or trained twice", abs(len(steps) - STEPS) + abs(len(lines) - STEPS), 0)
    row.check("samples lost, repeated or stale (history.py)", 0 if seen else 1, 0)
    row.check("last steps that differ when they are done afresh", sum(steps[i]["loss"] != fresh[i]["loss"] for i in WINDOW), 0)
    for phase in steps[1]["seconds"]:
        old, new = (1000 * statistics.median(run[i]["seconds"][phase] for i in WINDOW) for run in (steps, fresh))
        row.figure(f"median of {phase}", f"{old:.2f} ms; afresh {new:.2f} ms")
    drift = statistics.median(sum(steps[i]["seconds"].values()) / sum(fresh[i]["seconds"].values()) for i in WINDOW)
    row.figure("time of a step / the same step afresh", f"{drift:.3f}", "drift < 5 %", abs(drift - 1) < 0.05)
    for role in ("rollout", "teacher", "trainer"):
        first, last = (statistics.median(soak.memory[step][role] for step in looks) for looks in LOOKS)
        row.figure(f"memory of the {role}, steps {LOOKS[0][0]} to {LOOKS[0][-1]} and {LOOKS[1][0]} to {LOOKS[1][-1]}", f"{first:.0f} and {last:.0f} MiB",
                   "no growth", last <= 1.02 * first + 1)

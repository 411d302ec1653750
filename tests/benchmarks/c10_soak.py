"""C10: 200 steps during which every service is killed once and started again: nothing lost, nothing slower, nothing larger."""

import os
import pathlib
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
# Behind these steps the services die. What is compared lies before and behind all of it, and behind the first refresh of the
# snapshot, from which on the teachers have more to do.
KILLS = {50: "rollout", 80: "teacher", 110: "trainer"}
WINDOW = range(10, 45), range(155, 190)


class Soak:
    def __init__(self, folder):
        self.workspace = Workspace(folder)
        self.cluster = Cluster(self.workspace, rollouts=1).start()
        self.settings = {"trainer.steps": STEPS, "trainer.schedule_steps": STEPS, "trainer.batch_size": BATCH, "checkpoint.interval": INTERVAL,
                         "checkpoint.keep": 2, "teacher.snapshot_interval": 5, "evaluation.path": '""'}
        self.memory = {}  # step -> MiB of each role

    def lines(self):
        return self.workspace.metrics("soak")

    def pids(self):
        return {"rollout": self.cluster.rollouts[0].process.pid, "teacher": self.cluster.teachers[0].process.pid, "trainer": self.trainer.pid}

    def wait_for_step(self, step):
        wait_for(lambda: len(self.lines()) >= step or self.trainer.poll() is not None, seconds=900, what=f"step {step}")

    def run(self):
        self.trainer = self.cluster.start_trainer("soak", **self.settings)
        for step in sorted({*KILLS, 30, 45, 140, 150, 170, 190}):
            self.wait_for_step(step)
            if self.trainer.poll() is not None:
                sys.exit(self.cluster.log("soak"))
            if step not in KILLS:
                self.memory[step] = {role: proportional_mib(pid) for role, pid in self.pids().items()}
            elif KILLS[step] == "trainer":
                self.trainer.send_signal(signal.SIGKILL)
                self.trainer.wait()
                self.trainer = self.cluster.start_trainer("soak", **self.settings)
            else:
                service = next(s for s in self.cluster.services if s.role == KILLS[step])
                service.kill()
                service.start()
        code = self.trainer.wait(timeout=900)
        if code:
            sys.exit(self.cluster.log("soak"))


def main():
    row = Row("C10", f"{STEPS} steps of {BATCH} problems, each service killed once and started again")
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        soak = Soak(pathlib.Path(name))
        try:
            soak.run()
        finally:
            soak.cluster.stop()
        seen = history.check(soak.workspace.runs("soak") / "ledger.jsonl", BATCH, STEPS)
        lines = soak.lines()
    steps = {line["step"]: line for line in lines}
    row.check("steps missing or trained twice", abs(len(steps) - STEPS) + abs(len(lines) - STEPS), 0)
    row.check("samples lost, repeated or stale (history.py)", 0 if seen else 1, 0)
    before, behind = (statistics.median(sum(steps[i]["seconds"].values()) / steps[i]["generated_tokens"] for i in window) for window in WINDOW)
    drift = abs(behind / before - 1)
    for phase in steps[1]["seconds"]:
        first, last = (1000 * statistics.median(steps[i]["seconds"][phase] for i in window) for window in WINDOW)
        row.figure(f"median of {phase}", f"{first:.2f} ms in the first steps, {last:.2f} ms in the last")
    row.figure("time a sampled token, last steps / first steps", f"{behind / before:.3f}", "drift < 5 %", drift < 0.05)
    for role in ("rollout", "teacher", "trainer"):
        # From the first look at a process to the last: each role's newest process has run for at least 50 steps.
        first, last = soak.memory[140][role], soak.memory[190][role]
        row.figure(f"memory of the {role} at step 140 and 190", f"{first:.0f} and {last:.0f} MiB", "no growth", last <= 1.02 * first + 1)

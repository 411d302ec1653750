"""Runs the stages of an unpacked pack, each in a process with a time limit. See run.sh.

    run.py WORK RESULTS SECONDS [--total SECONDS] [--rehearse] [STAGE...]
"""

import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import machine
from results import Results, stage_text
from stage import NEEDS, REHEARSED, STAGES, want_of_part

# stage.py searches this folder for the rows.
import run_logs  # noqa: E402
from duel import LEFT_OUT  # noqa: E402

TREE = pathlib.Path(__file__).resolve().parents[2]
# The part of a stage's time that is kept for ending it in order.
RESERVE = 0.12
# A stage begins only if the call has this many seconds left.
LEAST_SECONDS = 60
# If a machine's image sets these variables, float32 products use 10 bits of the fraction and differ from the CPU
# through no fault of ours.
TF32 = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")


def read_lines(path):
    """Returns the lines of a record; a truncated line does not count."""
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def end_stage(work):
    """Kills every process that a stage in this folder has started, in any session."""
    wanted = os.fsencode(f"DAPD_GPU_STAGE={work}")
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
        except OSError:
            pass


class Runner:
    def __init__(self, work, results, seconds, total, rehearsal):
        self.work, self.folder, self.seconds, self.total, self.rehearsal = work, results, seconds, total, rehearsal
        self.end = time.time() + (total or float("inf"))
        self.manifest = json.loads((TREE / "manifest.json").read_text())
        self.facts = {}
        self.ended = False  # a signal ended this call

    def environment(self, record, seconds):
        """Returns the environment of rows and stages: the pack's programs, this Python, its peers, and folders of our
        own."""
        places = {name: self.work / name for name in ("models", "tmp", "triton")}
        for folder in places.values():
            folder.mkdir(exist_ok=True)
        path = [*self.facts["python_path"], *filter(None, [os.environ.get("PYTHONPATH")])]
        inherited = {key: value for key, value in os.environ.items() if key not in TF32}
        return {**inherited, "PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1",
                "DAPD_BIN": str(TREE / "bin"), "DAPD_PYTHON": sys.executable, "DAPD_BENCHMARK_RECORD": str(record),
                "DAPD_BENCHMARK_PAIRS": os.environ.get("DAPD_BENCHMARK_PAIRS", "3"),
                "DAPD_BENCHMARK_DEADLINE": str(time.time() + (1 - RESERVE) * seconds), "DAPD_GPU_STAGE": str(self.work),
                "DAPD_GPU_TESTS": " ".join(self.manifest["tests"]), "DAPD_GPU_REHEARSAL": "1" if self.rehearsal else "",
                "DAPD_G8_MODEL": str(places["models"] / "qwen3-1.7b"), "DAPD_QWEN_TOKENIZER": str(TREE / "qwen-tokenizer"),
                "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TMPDIR": str(places["tmp"]), "TRITON_CACHE_DIR": str(places["triton"])}

    def run(self, name, put):
        """Returns state, reason, seconds and lines of a stage. While the stage runs, put(state, reason, seconds, lines)
        gets what exists of them, because a signal that ends this call may leave no time for it."""
        missing = [f"{peer}: {self.facts['peers_left_out'][peer]}" for peer in NEEDS.get(name, []) if peer in self.facts["peers_left_out"]]
        if missing:
            return "not run", f"its peer is left out: {'; '.join(missing)}", 0.0, []
        if self.rehearsal and name not in REHEARSED:
            return "not run", "only a GPU can", 0.0, []
        if not self.rehearsal and self.facts["no_gpu"]:
            return "not run", self.facts["no_gpu"], 0.0, []
        if not self.rehearsal and (reason := want_of_part(name, self.manifest, self.facts["gpu"])):
            return "not run", reason, 0.0, []
        seconds = min(self.seconds, int(self.end - time.time())) if self.total else self.seconds
        if seconds < min(LEAST_SECONDS, self.seconds):
            return "not run", f"no time was left of the call's {self.total} s", 0.0, []
        record, start, reason = self.work / "record.jsonl", time.time(), None
        record.write_text("")
        with open(self.folder / "log.txt", "a+", errors="replace") as log:
            log.write(f"==== {name}, {time.strftime('%F %T')}\n")
            log.flush()
            begin = log.tell()
            process = subprocess.Popen([sys.executable, TREE / "tests/gpu/stage.py", name], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       env=self.environment(record, seconds), cwd=self.work, start_new_session=True)
            try:
                code = self.wait(process, start + seconds, lambda: put("running", None, time.time() - start, read_lines(record)))
                if code is None:
                    reason = f"not done after {seconds} s"
            except SystemExit:
                reason, self.ended = "the call was ended", True
            finally:
                end_stage(self.work)
                process.wait()
                log.seek(begin)
                text = log.read()
                # A stage that was ended may leave logs of its runs, and up to 10 GB of models.
                run_logs.show(self.work / "tmp", log)
                shutil.rmtree(self.work / "tmp", ignore_errors=True)
            log.write("\n")
        if reason is None and code == LEFT_OUT:
            return "not run", f"left out: {machine.last_line(text)}", time.time() - start, read_lines(record)
        if reason is None and code != 0:
            reason = machine.last_line(text) if code > 0 else f"ended by {signal.Signals(-code).name}: {machine.last_line(text)}"
        return "passed" if reason is None else "failed", reason, time.time() - start, read_lines(record)

    @staticmethod
    def wait(process, until, tell):
        """Returns the process's code, or None at `until`; every second it publishes what the stage has found."""
        while True:
            tell()
            try:
                return process.wait(max(0.0, min(1.0, until - time.time())))
            except subprocess.TimeoutExpired:
                if time.time() >= until:
                    return None

    def report(self, asked):
        """Runs the stages of `asked`; returns whether all of them passed."""
        # A killed call may have left a stage, which would share the GPU with ours. No other call uses the folder now
        # (run.sh).
        end_stage(self.work)
        try:
            self.facts = machine.examine(TREE, self.work, self.manifest)
        except machine.Unusable as reason:
            results = Results(self.folder, self.manifest, {}, list(STAGES), self.rehearsal)
            for name in asked:
                results.put(name, "not run", str(reason))
            print(f"nothing of the pack can run here: {reason}", file=sys.stderr)
            return False
        results = Results(self.folder, self.manifest, self.facts, list(STAGES), self.rehearsal)
        print(results.text(), flush=True)
        good = True
        for name in asked:
            before = results.of(name)
            outcome = self.run(name, functools.partial(results.put, name))
            if outcome[0] == "not run" and before is not None:
                entry = before  # the findings of an earlier call are worth more
            else:
                entry = results.put(name, *outcome)
                print("\n".join(stage_text(entry)), flush=True)
            good &= entry["state"] == "passed" or (self.rehearsal and entry["state"] == "not run")
            if self.ended:
                return False
        return good


def main():
    work, results, seconds = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), int(sys.argv[3])
    asked, total = sys.argv[4:], 0
    if asked[:1] == ["--total"]:
        total, asked = int(asked[1]), asked[2:]
    rehearsal = asked[:1] == ["--rehearse"]
    asked = asked[1:] if rehearsal else asked
    # The exit also ends the running stage.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    unknown = [name for name in asked if name not in STAGES]
    if unknown:
        print(f"no such stage: {', '.join(unknown)}; there are {' '.join(STAGES)}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0 if Runner(work, results, seconds, total, rehearsal).report([name for name in STAGES if name in asked or not asked]) else 1)


main()

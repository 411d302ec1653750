"""Runs the stages of an unpacked pack, each in a process that may take its time and no more. See run.sh.

    run.py WORK RESULTS SECONDS [--rehearse] [STAGE...]
"""

import json
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import time

import machine
from results import Results, stage_text
from stage import NEEDS, REHEARSED, STAGES

TREE = pathlib.Path(__file__).resolve().parents[2]
# Of a stage's time, what is kept for ending it in order.
RESERVE = 0.12


def read_lines(path):
    """The lines of a record; one that was cut off does not count."""
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def end_marked(mark):
    """Kills every process that the stage has started, whatever session it is in."""
    wanted = f"DAPD_GPU_STAGE={mark}".encode()
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
        except OSError:
            pass


class Runner:
    def __init__(self, work, results, seconds, rehearsal):
        self.work, self.folder, self.seconds, self.rehearsal = work, results, seconds, rehearsal
        self.manifest = json.loads((TREE / "manifest.json").read_text())
        self.facts = {}

    def environment(self, mark, record):
        """What rows and stages see: the pack's programs, this Python, its peers, and folders that are ours."""
        places = {name: self.work / name for name in ("models", "tmp", "triton")}
        for folder in places.values():
            folder.mkdir(exist_ok=True)
        path = [*self.facts["python_path"], *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1",
                "DAPD_BIN": str(TREE / "bin"), "DAPD_PYTHON": sys.executable, "DAPD_BENCHMARK_RECORD": str(record),
                "DAPD_BENCHMARK_PAIRS": os.environ.get("DAPD_BENCHMARK_PAIRS", "3"),
                "DAPD_BENCHMARK_DEADLINE": str(time.time() + (1 - RESERVE) * self.seconds), "DAPD_GPU_STAGE": mark,
                "DAPD_GPU_TESTS": " ".join(self.manifest["tests"]), "DAPD_GPU_REHEARSAL": "1" if self.rehearsal else "",
                "DAPD_G8_MODEL": str(places["models"] / "qwen3-1.7b"), "DAPD_QWEN_TOKENIZER": str(TREE / "qwen-tokenizer"),
                "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TMPDIR": str(places["tmp"]), "TRITON_CACHE_DIR": str(places["triton"])}

    def run(self, name):
        """State, reason, seconds and lines of a stage."""
        missing = [f"{peer}: {self.facts['peers_left_out'][peer]}" for peer in NEEDS.get(name, []) if peer in self.facts["peers_left_out"]]
        if missing:
            return "not run", f"its peer is left out: {'; '.join(missing)}", 0.0, []
        if self.rehearsal and name not in REHEARSED:
            return "not run", "only a GPU can", 0.0, []
        if not self.rehearsal and self.facts["no_gpu"]:
            return "not run", self.facts["no_gpu"], 0.0, []
        mark, record, log = secrets.token_hex(8), self.work / "record.jsonl", self.work / "stage.log"
        record.write_text("")
        start, reason = time.time(), None
        with open(log, "w") as output:
            process = subprocess.Popen([sys.executable, TREE / "tests/gpu/stage.py", name], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       env=self.environment(mark, record), cwd=self.work, start_new_session=True)
            try:
                code = process.wait(self.seconds)
            except subprocess.TimeoutExpired:
                reason = f"not done after {self.seconds} s"
            finally:
                end_marked(mark)
                process.wait()
                # Models of a stage that was ended, up to 10 GB.
                shutil.rmtree(self.work / "tmp", ignore_errors=True)
        text = log.read_text(errors="replace")
        with open(self.folder / "log.txt", "a") as whole:
            whole.write(f"==== {name}, {time.strftime('%F %T')}\n{text}\n")
        if reason is None and code != 0:
            reason = machine.last_line(text) if code > 0 else f"ended by {signal.Signals(-code).name}: {machine.last_line(text)}"
        return "passed" if reason is None else "failed", reason, time.time() - start, read_lines(record)

    def report(self, asked):
        """Runs what was asked for; whether all of it passed."""
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
            entry = results.put(name, *self.run(name))
            print("\n".join(stage_text(entry)), flush=True)
            good &= entry["state"] == "passed" or (self.rehearsal and entry["state"] == "not run")
        return good


def main():
    work, results, seconds = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), int(sys.argv[3])
    rehearsal = sys.argv[4:5] == ["--rehearse"]
    # The stage that is under way ends with this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    asked = sys.argv[5 if rehearsal else 4:]
    unknown = [name for name in asked if name not in STAGES]
    if unknown:
        print(f"no such stage: {', '.join(unknown)}; there are {' '.join(STAGES)}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0 if Runner(work, results, seconds, rehearsal).report([name for name in STAGES if name in asked or not asked]) else 1)


main()

#!/usr/bin/env python3
"""Grades answers that are Python programs by the tests in their rows, for grader.command (docs/graders.md).

    grader:
      command: [python3, deploy/examples/grade_python.py, --tests-column, tests]

The program is the last ``` block of the answer or, without one, the whole answer. The tests are a list, or the text of a JSON list,
with entries of two kinds:
    "assert double(2) == 4"            code that runs after the program, in one process with it
    {"input": "2\\n", "output": "4"}    the program's standard input, and the standard output that is expected
The score is the share of tests that pass; an answer is correct if all do. The feedback tells of the first test that fails.

Each test runs in a sandbox of bubblewrap (Debian's package of that name) without network, without the machine's files except
/usr, and with limits on time, memory, processes and output. Without bubblewrap, or where the kernel allows no user namespaces,
this program refuses to start; --unsafe runs the tests with your own rights, behind the limits alone.
"""

import argparse
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile

NOBODY = 65534
OUTPUT_BYTES = 1 << 20
QUOTED = 300

# Sets the limits in the sandbox and becomes the program. Processes are counted where this runs: in the sandbox's own user namespace.
LIMITED = """
import os, resource, sys
cpu, memory, processes, output = map(int, sys.argv[1:5])
for limit, value in ((resource.RLIMIT_CPU, cpu), (resource.RLIMIT_AS, memory), (resource.RLIMIT_NPROC, processes),
                     (resource.RLIMIT_FSIZE, output), (resource.RLIMIT_NOFILE, 64), (resource.RLIMIT_CORE, 0)):
    if value >= 0:
        resource.setrlimit(limit, (value, value))
os.execv(sys.executable, [sys.executable, "-I"] + sys.argv[5:])
"""

# Runs a program and a test behind it. The nonce says that the test was reached and passed: a program that ends early passes nothing.
DRIVER = """
import json, sys
task = json.load(sys.stdin)
scope = {"__name__": "program"}
try:
    exec(compile(task["program"], "program.py", "exec"), scope)
    exec(compile(task["test"], "test.py", "exec"), scope)
except SystemExit:
    sys.exit("the program ended itself")
print()
print(task["nonce"])
"""


class Sandbox:
    def __init__(self, arguments):
        self.arguments = arguments
        self.bwrap = None if arguments.unsafe else shutil.which("bwrap")

    def refusal(self):
        """Returns why no program can be run safely; None if it can."""
        if self.arguments.unsafe:
            return None
        if self.bwrap is None:
            return "there is no bwrap: install bubblewrap"
        try:
            with tempfile.TemporaryDirectory() as folder:
                ended, output, errors = self.run(pathlib.Path(folder), ["-c", "print(42)"], "")
        except OSError as error:
            return f"bwrap cannot be started: {error}"
        if output.strip() == "42":
            return None
        return f"bwrap makes no sandbox here: {ended or ''} {errors.strip()[:QUOTED]}"

    def command(self, folder):
        if self.bwrap is None:
            return []
        mounts = ["--ro-bind", "/usr", "/usr"]
        for name in ("/bin", "/sbin", "/lib", "/lib64"):
            path = pathlib.Path(name)
            if path.is_symlink():
                mounts += ["--symlink", os.readlink(path), name]
            elif path.exists():
                mounts += ["--ro-bind", name, name]
        return [self.bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", *mounts, "--dev", "/dev",
                "--size", str(16 << 20), "--tmpfs", "/tmp", "--ro-bind", str(folder), "/work", "--chdir", "/tmp", "--clearenv",
                "--setenv", "PATH", "/usr/bin:/bin", "--setenv", "LANG", "C.UTF-8", "--"]

    def run(self, folder, program, stdin):
        """Returns how the run ended (None: well), its stdout and its stderr."""
        a = self.arguments
        inside = folder if self.bwrap is None else pathlib.Path("/work")
        program = [str(inside / p) if (folder / p).is_file() else p for p in program]
        # Outside of a sandbox all processes of this user would count.
        processes = a.processes if self.bwrap else -1
        limits = [int(a.timeout) + 1, a.memory_mib << 20, processes, OUTPUT_BYTES]
        command = [*self.command(folder), a.python, "-I", "-c", LIMITED, *map(str, limits), *program]
        # The kernel does not count root's processes.
        drop = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if self.bwrap and os.geteuid() == 0 else {}
        if drop:
            folder.chmod(0o755)
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            given.write(stdin.encode())
            given.seek(0)
            process = subprocess.Popen(command, stdin=given, stdout=output, stderr=errors, start_new_session=True, **drop)
            ended = None
            try:
                code = process.wait(a.timeout)
                if code != 0:
                    ended = "ended with code %d" % code if code > 0 else "was ended by " + signal.Signals(-code).name
            except subprocess.TimeoutExpired:
                ended = f"took longer than {a.timeout:g} s"
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
            texts = []
            for file in (output, errors):
                file.seek(0)
                texts.append(file.read(OUTPUT_BYTES).decode(errors="replace"))
        return ended, *texts


def program_of(answer):
    blocks = re.findall(r"```[^\n`]*\n(.*?)```", answer, re.DOTALL)
    return blocks[-1] if blocks else answer


def tests_of(row, column):
    """Returns the row's tests; ValueError if it has none."""
    tests = (row or {}).get(column)
    if isinstance(tests, str):
        try:
            tests = json.loads(tests)
        except json.JSONDecodeError:
            tests = [tests]  # one piece of code
    if not isinstance(tests, list) or not tests:
        raise ValueError(f"the row has no tests in the column '{column}'")
    for test in tests:
        if not isinstance(test, str) and not (isinstance(test, dict) and isinstance(test.get("output"), str)):
            raise ValueError(f"the column '{column}' has a test that is neither code nor an input with its output")
    return tests


def shown(text):
    return text if len(text) <= QUOTED else text[:QUOTED] + " ..."


def lines_of(text):
    return [line.rstrip() for line in text.strip().splitlines()]


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def failure(sandbox, program, test):
    """Returns what is wrong with the program by this test; None if it passes."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if isinstance(test, str):
            (folder / "driver.py").write_text(DRIVER)
            nonce = secrets.token_hex(16)
            task = json.dumps({"program": program, "test": test, "nonce": nonce})
            ended, output, errors = sandbox.run(folder, ["driver.py"], task)
            if ended is None and last_line(output) == nonce:
                return None
            return f"{shown(test)}: {shown(last_line(errors)) or ended or 'the test was not reached'}"
        (folder / "program.py").write_text(program)
        given = test.get("input", "")
        ended, output, errors = sandbox.run(folder, ["program.py"], given)
        if ended is None and lines_of(output) == lines_of(test["output"]):
            return None
        if ended is not None:
            return f"with the input {shown(given)!r} the program {ended}: {shown(last_line(errors))}"
        return f"with the input {shown(given)!r} the output is {shown(output)!r}, not {shown(test['output'])!r}"


def grade(sandbox, question):
    tests = tests_of(question["row"], sandbox.arguments.tests_column)
    program = program_of(question["answer"])
    failures = [failure(sandbox, program, test) for test in tests]
    passed = failures.count(None)
    result = {"score": passed / len(tests), "correct": passed == len(tests)}
    first = next((i for i, why in enumerate(failures) if why is not None), None)
    if first is not None:
        result["feedback"] = f"Test {first + 1} of {len(tests)} fails: {failures[first]}"
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests-column", default="tests", help="column of the row that has the tests")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds for each test")
    parser.add_argument("--memory-mib", type=int, default=1024, help="address space of each process of a test")
    parser.add_argument("--processes", type=int, default=32, help="processes and threads that a test may have")
    parser.add_argument("--python", default="/usr/bin/python3", help="interpreter of the programs; it must be below /usr")
    parser.add_argument("--unsafe", action="store_true", help="run programs without a sandbox, with your own rights")
    sandbox = Sandbox(parser.parse_args())
    refusal = sandbox.refusal()
    if refusal is not None:
        sys.exit(f"grade_python.py: {refusal}; --unsafe runs programs with your own rights instead")
    sys.stdin.reconfigure(encoding="utf-8")
    for line in sys.stdin:
        question = json.loads(line)
        try:
            result = grade(sandbox, question)
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps({"id": question["id"], **result}), flush=True)


if __name__ == "__main__":
    main()

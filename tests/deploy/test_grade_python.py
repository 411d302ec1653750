"""deploy/examples/grade_python.py: a sandbox for programs that are graded by their tests."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRADER = ROOT / "deploy/examples/grade_python.py"
TESTS = ["assert double(3) == 6", "assert double(2) == 4"]


def grade(programs, *flags, tests=TESTS, env=None):
    """Returns the grades of the programs, in order, and the ended process."""
    questions = [{"id": str(i), "answer": f"It is:\n```python\n{program}\n```\n", "row": {"tests": tests}}
                 for i, program in enumerate(programs)]
    ended = subprocess.run([sys.executable, GRADER, *flags], input="".join(json.dumps(q) + "\n" for q in questions),
                           capture_output=True, text=True, env=env, timeout=120)
    grades = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [g["id"] for g in grades] == [q["id"] for q in questions[:len(grades)]]
    return grades, ended


@pytest.fixture(scope="module")
def sandbox():
    _, ended = grade([])
    if ended.returncode != 0:
        pytest.skip(f"no sandbox on this machine: {ended.stderr.strip()}")


def test_right_and_wrong_programs(sandbox):
    (right, half, none), _ = grade(["def double(x): return 2 * x", "def double(x): return x + 2", "def triple(x): return 3 * x"])
    assert right == {"id": "0", "score": 1.0, "correct": True}
    assert (half["score"], half["correct"]) == (0.5, False)
    assert half["feedback"] == "Test 1 of 2 fails: assert double(3) == 6: AssertionError"
    assert none["score"] == 0.0 and "NameError" in none["feedback"]


def test_a_program_reads_an_input_and_writes_an_output(sandbox):
    tests = [{"input": "2\n", "output": "4\n"}, {"input": "5", "output": "10"}]
    (right, wrong, broken), _ = grade(["print(2 * int(input()))", "print(4)", "1 / 0"], tests=tests)
    assert right["correct"] and wrong["score"] == 0.5
    assert wrong["feedback"].startswith("Test 2 of 2 fails: with the input '5' the output is '4")
    assert "ZeroDivisionError" in broken["feedback"]


@pytest.mark.parametrize("program, why", [
    ("while True: pass", "took longer than 1 s"),
    ("import time\ntime.sleep(60)", "took longer than 1 s"),
    ("import os, time\nn = 0\ntry:\n  while os.fork() > 0: n += 1\n  time.sleep(60)\nexcept OSError as e:\n  raise RuntimeError(f'{n} forks')",
     "forks"),
    ("import socket\nsocket.create_connection(('1.1.1.1', 53), 1)", "unreachable"),
    ("import os\nopen(os.path.join(%r, 'deploy/install.sh'))" % str(ROOT), "No such file"),
    ("open('/usr/grader-was-here', 'w')", "Read-only"),
    ("x = bytearray(3 << 30)", "MemoryError"),
    ("while True: print('x' * 1000)", "too large"),
    ("raise SystemExit(0)", "ended itself"),
    ("import os\nos._exit(0)", "not reached"),
])
def test_a_hostile_program_harms_nobody(program, why, sandbox):
    (result,), _ = grade([program], "--timeout", "1", tests=TESTS[:1])
    print(result["feedback"])
    assert result["score"] == 0.0 and not result["correct"]
    assert why in result["feedback"]


def test_a_fork_bomb_is_bounded_and_leaves_nothing(sandbox):
    bomb = "import os, time\nmark = 'bomb-%d' % 424242\nwhile True:\n  try: os.fork()\n  except OSError: time.sleep(60)"
    (result, right), _ = grade([bomb, "def double(x): return 2 * x"], "--timeout", "1", tests=TESTS[:1])
    assert "took longer" in result["feedback"] and right["correct"]
    lines = [path.read_bytes() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]
    assert not any(b"/work/driver.py" in line for line in lines)


def test_a_row_without_tests_is_an_error_and_no_grade(sandbox):
    for tests in (None, [], [5], [{"input": "1"}]):
        (result,), _ = grade(["print(1)"], tests=tests)
        assert set(result) == {"id", "error"} and "tests" in result["error"]


def test_without_a_sandbox_it_refuses(tmp_path):
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho no namespaces >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    # Who is nobody when root grades may not see the folder.
    for path, why in ((str(tmp_path / "none"), "install bubblewrap"), (str(tmp_path), "bwrap ")):
        grades, ended = grade(["x = 1"], env={**os.environ, "PATH": path})
        assert not grades and ended.returncode == 1
        assert why in ended.stderr and "--unsafe" in ended.stderr
    # What was asked for explicitly.
    (right, wrong, late), _ = grade(["def double(x): return 2 * x", "def double(x): return x", "while True: pass"], "--unsafe",
                                    "--timeout", "2", tests=TESTS[:1], env={**os.environ, "PATH": "/nowhere"})
    assert right["correct"] and not wrong["correct"] and "took longer" in late["feedback"]


def test_dapd_grade_uses_it(sandbox, tmp_path):
    dapd = ROOT / "build/bin/dapd"
    answers = [("right", "def double(x): return 2 * x"), ("wrong", "def double(x): return x + 2")]
    (tmp_path / "answers.jsonl").write_text("".join(
        json.dumps({"id": id, "text": f"```python\n{program}\n```", "tests": TESTS}) + "\n" for id, program in answers))
    (tmp_path / "grade.yaml").write_text(f"model: {{path: none}}\ngrader: {{command: [{sys.executable}, {GRADER}]}}\n")
    subprocess.run([dapd, "grade", "--input", tmp_path / "answers.jsonl", "--output", tmp_path / "grades.jsonl", "--config",
                    tmp_path / "grade.yaml"], check=True)
    right, wrong = map(json.loads, (tmp_path / "grades.jsonl").read_text().splitlines())
    assert right == {"id": "right", "extracted": None, "correct": True, "score": 1.0}
    assert wrong["score"] == 0.5 and wrong["feedback"].startswith("Test 1 of 2 fails")

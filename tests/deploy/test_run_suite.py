"""Tests that a failed test runs once more by itself, with stand-in suites of all kinds whose tests fail once, always, or end the runner."""

import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import pytest_by_file  # noqa: E402

# The first call makes the file and fails.
ONCE = "if [ -e {0}/{1} ]; then exit 0; fi; touch {0}/{1}; echo the first reason; exit 1"

PYTEST_SUITE = """
import os, pathlib
import pytest

HERE = pathlib.Path(__file__).parent

def once(name):
    again = (HERE / name).exists()
    (HERE / name).touch()
    return not again

def test_passes():
    pass
"""
FAILS_ONCE = """
class TestsOf:
    @pytest.mark.parametrize("what", ["a [b]/c.d"])
    def test_once(self, what):
        print("what it printed")
        assert not once("once"), "the first reason"
"""
FAILS_TWICE = "def test_always(): assert 1 == 2\n"
ENDS_THE_RUNNER_ONCE = "def test_ends():\n    if once('ends'): os._exit(3)\n"
ENDS_THE_RUNNER = "def test_ends(): os._exit(3)\n"


def run_suite(folder, kind, *arguments):
    """Runs the suite as tests/run.sh does and counts; returns run_suite.py's code and the lines of the count."""
    logs = folder / "logs"
    logs.mkdir()
    # This test may itself run in a process of pytest-xdist.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    with open(logs / "suite.log", "w") as log:
        code = subprocess.run([sys.executable, ROOT / "tests/run_suite.py", logs / "suite.xml", kind, *map(str, arguments)], cwd=folder,
                              stdout=log, stderr=log, env=environment).returncode
    counted = subprocess.run([sys.executable, ROOT / "tests/count_results.py", logs], capture_output=True, text=True)
    assert (counted.returncode == 0) == (code == 0), (logs / "suite.log").read_text()
    listed = (logs / "flaky.txt").read_text().splitlines()
    lines = counted.stdout.splitlines()
    assert [f"flaky: {line}" for line in listed] == [line for line in lines if line.startswith("flaky: ")] == lines[-1 - len(listed):-1]
    return code, lines


def first_failure(line):
    return pathlib.Path(line.rsplit("first failure: ", 1)[1].removesuffix(")")).read_text()


def run_pytest(folder, tests, processes=1):
    (folder / "suite").mkdir()
    (folder / "suite/test_stand_in.py").write_text(PYTEST_SUITE + tests)
    return run_suite(folder, "pytest", processes, "suite")


@pytest.mark.parametrize("processes", [1, 2])
def test_pytest_that_fails_once_is_flaky(tmp_path, processes):
    code, lines = run_pytest(tmp_path, FAILS_ONCE, processes)
    assert code == 0 and lines[-1] == "2 passed, 0 failed, 0 skipped"
    assert lines[-2].startswith("flaky: suite.test_stand_in.TestsOf test_once[a [b]/c.d]") and " (suite; first failure: " in lines[-2]
    assert "the first reason" in first_failure(lines[-2])


def test_pytest_that_fails_twice_fails(tmp_path):
    code, lines = run_pytest(tmp_path, FAILS_ONCE + FAILS_TWICE)
    assert code == 1 and lines[-1] == "2 passed, 1 failed, 0 skipped"
    assert [line.split()[0] for line in lines[:-1]] == ["failed:", "flaky:"] and "test_always" in lines[0]
    report = ElementTree.parse(tmp_path / "logs/suite.xml")
    assert [pathlib.Path(again.get("log")).exists() for again in report.iter("rerunFailure")] == [True]


def test_a_fixture_that_fails_once_is_flaky(tmp_path):
    fixture = "@pytest.fixture\ndef broken():\n    yield 1\n    assert not once('fixture'), 'the first reason'\ndef test_it(broken): pass\n"
    code, lines = run_pytest(tmp_path, fixture)
    assert code == 0 and lines[-1] == "2 passed, 0 failed, 0 skipped" and "the first reason" in first_failure(lines[-2])


def test_a_file_that_cannot_be_read_fails_and_the_others_run(tmp_path):
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite/test_broken.py").write_text("import no_such_module")
    (tmp_path / "suite/test_whole.py").write_text("def test_it(): pass")
    code, lines = run_suite(tmp_path, "pytest", 1, "suite")
    assert code == 1 and lines[-1] == "1 passed, 1 failed, 0 skipped"


def test_a_runner_that_dies_once_is_flaky(tmp_path):
    code, lines = run_pytest(tmp_path, ENDS_THE_RUNNER_ONCE)
    assert code == 0 and lines[-1] == "2 passed, 0 failed, 0 skipped"
    assert lines[-2] == f"flaky: ended without a report (suite; first failure: {tmp_path}/logs/suite.log)"


def test_a_runner_that_dies_twice_fails(tmp_path):
    code, lines = run_pytest(tmp_path, ENDS_THE_RUNNER)
    assert code == 1 and lines == [f"failed: suite ended without a report; see {tmp_path}/logs/suite.log", "0 passed, 1 failed, 0 skipped"]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_runner_that_breaks_off_once_is_flaky(tmp_path, processes):
    """An error of pytest itself appears in the report like a test's error, and no test follows it."""
    (tmp_path / "conftest.py").write_text(f"""
import os, pathlib
def pytest_runtest_logreport(report):
    once = pathlib.Path({str(tmp_path / "once")!r})
    if report.when == "call" and "PYTEST_XDIST_WORKER" not in os.environ and not once.exists():
        once.touch()
        raise OSError("the first reason")
""")
    code, lines = run_pytest(tmp_path, "def test_behind_it(): pass\n", processes)
    assert code == 0 and lines[-1] == "2 passed, 0 failed, 0 skipped"
    assert lines[-2] == f"flaky: ended without a report (suite; first failure: {tmp_path}/logs/suite.log)"


@pytest.mark.parametrize("tests, counts", [(ENDS_THE_RUNNER_ONCE, "3 passed, 0 failed, 0 skipped"), (ENDS_THE_RUNNER, "2 passed, 1 failed, 0 skipped")],
                         ids=["once", "always"])
def test_of_several_processes_only_the_test_that_ended_one_is_run_again(tmp_path, tests, counts):
    code, lines = run_pytest(tmp_path, tests + "def test_behind_it(): pass\n", processes=2)
    assert lines[-1] == counts and "test_ends" in lines[-2]
    assert "crashed while running" in (first_failure(lines[-2]) if code == 0 else (tmp_path / "logs/suite.log").read_text())


def test_what_waited_behind_a_test_that_ended_its_process_is_run(tmp_path):
    """One test of its file remains, and another file that the process had taken."""
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite/test_ends.py").write_text(PYTEST_SUITE + ENDS_THE_RUNNER_ONCE + "def test_behind_it(): pass\n")
    for name in ("test_more.py", "test_most.py"):
        (tmp_path / "suite" / name).write_text("import pytest\n@pytest.mark.parametrize('number', range(6))\ndef test_number(number): pass\n")
    code, lines = run_suite(tmp_path, "pytest", 2, "suite")
    assert code == 0 and lines[-1] == "15 passed, 0 failed, 0 skipped" and lines[-2].startswith("flaky: suite.test_ends test_ends "), \
        (tmp_path / "logs/suite.log").read_text()


def test_files_that_take_longest_begin_first(tmp_path):
    longest = pytest_by_file.LONGEST
    assert all((ROOT / name).exists() for name in longest)
    begins = "import pathlib\ndef test_it(): print(pathlib.Path(__file__).stem, file=open('begun', 'a'))\n"
    for name in ("suite/test_a.py", "suite/test_b.py", *longest):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(begins)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    command = [sys.executable, ROOT / "tests/pytest_by_file.py", "suite", "tests", "-n", "1", "--dist", "loadfile", "--no-loadscope-reorder"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stdout
    assert (tmp_path / "begun").read_text().split() == [*(pathlib.Path(name).stem for name in longest), "test_a", "test_b"]


def test_where_everything_fails_nothing_is_run_again(tmp_path):
    code, lines = run_pytest(tmp_path, "@pytest.mark.parametrize('number', range(21))\ndef test_number(number): assert not once(f'n{number}')\n")
    assert code == 1 and lines[-1] == "1 passed, 21 failed, 0 skipped"
    assert "none is run again" in (tmp_path / "logs/suite.log").read_text()


def test_a_suite_without_tests_counts_nothing(tmp_path):
    (tmp_path / "suite").mkdir()
    code = subprocess.run([sys.executable, ROOT / "tests/run_suite.py", tmp_path / "x.xml", "pytest", "1", "suite"], cwd=tmp_path,
                          capture_output=True).returncode
    assert code == 0


def write_ctest(folder, tests, label="stand-in"):
    (folder / "build").mkdir()
    lines = []
    for name, script in tests.items():
        lines += [f'add_test([=[{name}]=] "bash" "-c" [=[{script}]=])', f"set_tests_properties([=[{name}]=] PROPERTIES LABELS {label})"]
    (folder / "build/CTestTestfile.cmake").write_text("\n".join(lines) + "\n")


def test_ctest_that_fails_once_is_flaky_and_one_that_fails_twice_fails(tmp_path):
    write_ctest(tmp_path, {
        "A.Passes": "exit 0",
        "A/Sizes.FailsOnce/2 (b+c)": ONCE.format(tmp_path, "once"),
        "A.FailsTwice": "exit 1",
        # The name is the beginning of another test's name.
        "A.Fails": "echo run >>count; " + ONCE.format(tmp_path, "crash").replace("exit 1", "kill -SEGV $$"),
    })
    code, lines = run_suite(tmp_path, "ctest", "build", "stand-in")
    assert code == 1 and lines[-1] == "3 passed, 1 failed, 0 skipped"
    assert lines[0].startswith("failed: A.FailsTwice")
    assert [line.split(" (suite;")[0] for line in lines[1:-1]] == ["flaky: A/Sizes.FailsOnce/2 (b+c)", "flaky: A.Fails"]
    assert "the first reason" in first_failure(lines[1]) and "the first reason" in first_failure(lines[2])
    assert (tmp_path / "build/count").read_text().split() == ["run", "run"]


FUZZ_SCRIPT = """#!/usr/bin/env bash
# Says of the targets `sound` and `odd`, or of those it is asked for, what a fuzzing run would.
cd {0}
echo "$@" >>calls
seconds=$1
shift
cases=
for target in ${{@:-sound odd}}; do
  problem=
  if [ "$target" = odd ] && ! ({1}); then problem='<failure message="FAILED">what it printed</failure>'; fi
  cases+="<testcase classname=\\"fuzz\\" name=\\"$target\\">$problem</testcase>"
done
echo "<testsuite name=\\"fuzz\\">$cases</testsuite>" >"$FUZZ_REPORT"
[[ $cases != *failure* ]]
"""


@pytest.mark.parametrize("outcome, counts", [("once", "2 passed, 0 failed, 0 skipped"), ("always", "1 passed, 1 failed, 0 skipped")])
def test_a_fuzz_target_is_run_again_too(tmp_path, outcome, counts):
    script = tmp_path / "run.sh"
    script.write_text(FUZZ_SCRIPT.format(tmp_path, ONCE.format(tmp_path, "once") if outcome == "once" else "exit 1"))
    script.chmod(0o755)
    code, lines = run_suite(tmp_path, "fuzz", script, 3)
    assert lines[-1] == counts and (code == 0) == (outcome == "once")
    assert (tmp_path / "calls").read_text().splitlines() == ["3", "3 odd"]
    if outcome == "once":
        assert lines[-2].startswith("flaky: fuzz odd (suite; ") and "what it printed" in first_failure(lines[-2])


BREAKING_INPUT = b"an input that nobody guesses"
# libFuzzer cannot see through the comparison with a hash.
STAND_IN_TARGET = """
#include <cstddef>
#include <cstdint>
#include <cstdlib>
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < size; ++i) hash = (hash ^ data[i]) * 1099511628211u;
  if (hash == HASH) std::abort();
  return 0;
}
"""


def fnv1a(text):
    value = 14695981039346656037
    for byte in text:
        value = (value ^ byte) * 1099511628211 % 2**64
    return value


def test_a_fuzz_target_begins_with_what_broke_it_before(tmp_path):
    """Otherwise a second run that does not find the input again would look like a flaky test."""
    source = tmp_path / "stand_in.cc"
    source.write_text(STAND_IN_TARGET.replace("HASH", f"{fnv1a(BREAKING_INPUT)}u"))
    binaries = tmp_path / "build-fuzz/bin"
    binaries.mkdir(parents=True)
    subprocess.run(["clang++", "-O1", "-fsanitize=fuzzer", source, "-o", binaries / "dapd_stand_in_fuzz"], check=True)
    # The tree has only the script and a build that has nothing to do.
    for folder in ("deploy", "tests/fuzz/corpus/stand_in", "tests/fuzz/dictionaries", "build-fuzz/findings/stand_in"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("deploy/phase.sh", "tests/fuzz/run.sh"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/cmake").write_text("#!/bin/sh\n")
    (tmp_path / "bin/cmake").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}

    def run():
        return subprocess.run(["bash", tmp_path / "tests/fuzz/run.sh", "1", "stand_in"], capture_output=True, text=True, env=environment)

    sound = run()
    assert sound.returncode == 0 and sound.stdout.splitlines()[-1] == "1 passed, 0 failed"
    (tmp_path / "build-fuzz/findings/stand_in/crash-earlier").write_bytes(BREAKING_INPUT)
    broken = run()
    assert broken.returncode == 1 and broken.stdout.splitlines()[-1] == "0 passed, 1 failed"
    assert "<failure" in (tmp_path / "build-fuzz/report.xml").read_text()


def test_run_sh_ends_with_the_flaky_and_the_counts(tmp_path):
    """Runs the script in a tree of stand-ins, where installing and building do nothing."""
    for folder in ("deploy", "tests/deploy", "tests/dashboards", ".deps/venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("deploy/phase.sh", "tests/run.sh", "tests/run_suite.py", "tests/pytest_by_file.py", "tests/count_results.py"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    for name, text in {"deploy/install.sh": "", "deploy/build.sh": "", ".deps/venv/bin/python": f'exec {sys.executable} "$@"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    write_ctest(tmp_path, {"A.Passes": "exit 0", "A.FailsOnce": ONCE.format(tmp_path, "once")}, "unit")
    (tmp_path / "tests/dashboards/test_stand_in.py").write_text(PYTEST_SUITE + FAILS_ONCE)
    result = subprocess.run(["bash", tmp_path / "tests/run.sh", "unit"], capture_output=True, text=True)
    flaky = ["A.FailsOnce (ctest-unit; first failure: ", "tests.dashboards.test_stand_in.TestsOf test_once[a [b]/c.d] (pytest-unit; first failure: "]
    assert result.returncode == 0 and result.stdout.splitlines()[-1] == "4 passed, 0 failed, 0 skipped", result.stderr
    for line, beginning in zip(result.stdout.splitlines()[-3:], flaky):
        assert line.startswith("flaky: " + beginning)
    listed = (tmp_path / "build/test-logs/flaky.txt").read_text().splitlines()
    assert [f"flaky: {line}" for line in listed] == result.stdout.splitlines()[-3:-1]
    for line in listed:
        assert "the first reason" in (tmp_path / line.rsplit("first failure: ", 1)[1].removesuffix(")")).read_text()

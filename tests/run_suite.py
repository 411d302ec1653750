#!/usr/bin/env python3
"""Runs a suite, and each test of it that failed once more by itself.

    run_suite.py REPORT ctest BUILD LABEL
    run_suite.py REPORT pytest PROCESSES FOLDER...
    run_suite.py REPORT fuzz SCRIPT SECONDS

REPORT (X.xml) becomes the suite's JUnit report. A test that passed the second time stays in it as passed, with its first failure as
<flakyFailure log="...">; a test that failed twice stays failed, with a <rerunFailure log="..."> as well. The folder X/ has the output of
both runs. A suite that ends without a report, breaks off, or ends with an error and no failed test, is run once more as a whole; if that
works, the report itself has the <flakyFailure>, otherwise there is no report. If more than 20 tests fail, something is broken, not flaky:
none of them is run again.

PROCESSES is the number of processes that share the tests (pytest-xdist): a test that ends one of them fails, and the others run on. SCRIPT
is called as tests/fuzz/run.sh is, with FUZZ_REPORT in its environment.

Ends with 0 if every test passed, the first time or the second.
"""

import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

MOST_RUN_AGAIN = 20
TEST_TIMEOUT_SECONDS = 600


class CTest:
    nothing_ran = 0

    def __init__(self, build, label):
        self.build, self.label = build, label

    def command(self, report, test=None):
        which = ["--label-regex", f"^{self.label}$", "--no-tests=ignore", "--parallel", str(os.cpu_count())]
        if test is not None:
            which = ["--tests-regex", f"^{re.escape(test)}$", "--no-tests=error"]
        return ["ctest", "--test-dir", self.build, *which, "--output-on-failure", "--timeout", str(TEST_TIMEOUT_SECONDS),
                "--output-junit", str(report.resolve())]

    def broke_off(self, case):
        return False

    def name(self, case):
        return case.get("name")


class Pytest:
    nothing_ran = 5

    def __init__(self, processes, *folders):
        self.processes, self.folders = int(processes), folders

    def command(self, report, test=None):
        which = self.folders if test is None else [test]
        # A file's tests stay together, so that a module's fixtures are made once. Files with the most tests do not begin first: some files
        # have few tests that take minutes; pytest_by_file.py names them.
        share = ["-n", str(self.processes), "--dist", "loadfile", "--no-loadscope-reorder"] if test is None and self.processes > 1 else []
        program = [pathlib.Path(__file__).with_name("pytest_by_file.py")] if share else ["-m", "pytest"]
        # The first form of the report has the file of each test.
        return [sys.executable, *program, *which, *share, "-rA", "--durations=25", "-p", "no:cacheprovider", "--rootdir", ".",
                # Only the folders of failed tests stay, for somebody to look into.
                "-o", "tmp_path_retention_policy=failed",
                "--continue-on-collection-errors", "-o", "junit_family=xunit1", "--junitxml", str(report)]

    def broke_off(self, case):
        """Returns whether pytest itself broke off, so that no further test began."""
        return case.get("classname") == "pytest" and case.get("name") == "internal"

    def name(self, case):
        """Returns the node's id; a file that could not be read is a case without a class."""
        file, inside = case.get("file"), case.get("classname")
        if not inside or file is None:
            return file or case.get("name")
        module = file.removesuffix(".py").replace("/", ".")
        return "::".join([file, *inside.removeprefix(module).split(".")[1:], case.get("name")])


class Fuzz:
    nothing_ran = 0

    def __init__(self, script, seconds):
        self.script, self.seconds = script, seconds

    def command(self, report, test=None):
        return ["env", f"FUZZ_REPORT={report.resolve()}", self.script, self.seconds, *([] if test is None else [test])]

    def broke_off(self, case):
        return False

    def name(self, case):
        return case.get("name")


def problems(case):
    return case.findall("failure") + case.findall("error")


def run(suite, report, test=None, log=None):
    """Returns the report's root, or None without a report or if the report does not say why the command failed."""
    report.unlink(missing_ok=True)
    sys.stdout.flush()
    code = subprocess.run(suite.command(report, test), stdout=log, stderr=log and subprocess.STDOUT).returncode
    try:
        root = ElementTree.parse(report).getroot()
    except (FileNotFoundError, ElementTree.ParseError):
        return None
    failed = [case for case in root.iter("testcase") if problems(case)]
    if any(suite.broke_off(case) for case in failed):
        return None
    return root if code in (0, suite.nothing_ran) or failed else None


def passes(suite, folder, slug, test):
    """Returns whether `test` passes by itself."""
    with open(folder / f"{slug}.again.log", "w") as log:
        root = run(suite, folder / f"{slug}.again.xml", test, log)
    cases = [] if root is None else list(root.iter("testcase"))
    ran = [case for case in cases if case.find("skipped") is None and case.get("status") not in ("notrun", "disabled")]
    return bool(ran) and not any(problems(case) for case in cases)


def run_again(suite, folder, number, test, cases):
    """Runs a failed test by itself and writes the result into its cases."""
    folder.mkdir(exist_ok=True)
    slug = f"{number:02}-" + re.sub(r"[^\w.-]+", "-", test)[-80:]
    first = folder / f"{slug}.first.log"
    found = [element for case in cases for element in [*problems(case), *case.iter("system-out"), *case.iter("system-err")]]
    first.write_text("\n".join(f"{element.get('message', '')}\n{element.text or ''}" for element in found))
    passed = passes(suite, folder, slug, test)
    print(f"{'flaky' if passed else 'failed twice'}: {test}; first: {first}, second: {folder / slug}.again.log")
    for case in cases:
        if not passed:
            ElementTree.SubElement(case, "rerunFailure", log=f"{folder / slug}.again.log")
            continue
        case.set("status", "run")
        for problem in problems(case):
            problem.tag = "flakyFailure"
            problem.set("log", str(first))
    return passed


def main():
    report = pathlib.Path(sys.argv[1])
    suite = {"ctest": CTest, "pytest": Pytest, "fuzz": Fuzz}[sys.argv[2]](*sys.argv[3:])
    root = run(suite, report)
    if root is None:
        print(f"{report.stem} ended without a report: all of it once more")
        root = run(suite, report)
        if root is None:
            report.unlink(missing_ok=True)
            sys.exit(1)
        ElementTree.SubElement(root, "flakyFailure", log=str(report.with_suffix(".log")))
    failed = {}
    for case in root.iter("testcase"):
        if problems(case):
            failed.setdefault(suite.name(case), []).append(case)
    if len(failed) > MOST_RUN_AGAIN:
        print(f"{len(failed)} tests failed, more than {MOST_RUN_AGAIN}: none is run again")
        sys.exit(1)
    # The list makes every one of them run.
    passed = [run_again(suite, report.with_suffix(""), number, test, cases) for number, (test, cases) in enumerate(failed.items(), 1)]
    ElementTree.ElementTree(root).write(report, encoding="utf-8", xml_declaration=True)
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()

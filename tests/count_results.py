#!/usr/bin/env python3
"""Counts the JUnit reports in a folder, one for each suite; the log `X.log` stands beside the report `X.xml` (run_suite.py).

    count_results.py FOLDER

Names the failed tests with their reasons and the skipped tests, and then the flaky ones, which failed first and passed once more by
themselves. A flaky test counts as passed and is listed in FOLDER/flaky.txt, too. The last line is "N passed, N failed, N skipped". A log
without a report is a suite that died twice: it counts as one failure. Ends with 1 on any failure, or if no test ran.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree

# It has room for a fuzz target's finding with its input (fuzz/run.sh).
MOST_OF_A_REASON = 800


def outcome(case):
    """Returns "passed", "failed" or "skipped" for a <testcase>; ctest marks tests that it could not run with status="notrun"."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
        return "skipped"
    return "passed"


def title(case):
    group, name = case.get("classname"), case.get("name")
    return name if group in (name, "", None) else f"{group} {name}"


def reason(case):
    """Returns the beginning of the first line that a failed <testcase> says of its failure, for a reader who has only these lines."""
    lines = [line for failure in case.findall("failure") + case.findall("error") for line in failure.get("message", "").splitlines()]
    return f": {lines[0][:MOST_OF_A_REASON]}" if lines else ""


def flaky_line(suite, name, element):
    failure = element.find("flakyFailure")
    return [] if failure is None else [f"{name} ({suite}; first failure: {failure.get('log')})"]


def main():
    folder = pathlib.Path(sys.argv[1])
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    flaky = []
    for log in sorted(folder.glob("*.log")):
        report = log.with_suffix(".xml")
        try:
            root = ElementTree.parse(report).getroot()
        except (FileNotFoundError, ElementTree.ParseError):  # the suite ended while it wrote
            print(f"failed: {log.stem} ended without a report; see {log}")
            counts["failed"] += 1
            continue
        flaky += flaky_line(log.stem, "ended without a report", root)
        for case in root.iter("testcase"):
            result = outcome(case)
            counts[result] += 1
            flaky += flaky_line(log.stem, title(case), case)
            if result != "passed":
                print(f"{result}: {title(case)}{reason(case)} ({log})")
    for line in flaky:
        print(f"flaky: {line}")
    (folder / "flaky.txt").write_text("".join(f"{line}\n" for line in flaky))
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    sys.exit(0 if counts["failed"] == 0 and counts["passed"] > 0 else 1)


if __name__ == "__main__":
    main()

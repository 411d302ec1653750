#!/usr/bin/env python3
"""Counts the JUnit reports of a folder, one a test run, whose log `X.log` stands beside the report `X.xml`.

    count_results.py FOLDER

Names what failed and what was skipped; the last line is "N passed, N failed, N skipped". A log without a report is a
run that died: it counts as one failure. Ends with 1 on any failure, or if no test ran.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def outcome(case):
    """"passed", "failed" or "skipped" of a <testcase>; ctest marks what it could not run as status="notrun"."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
        return "skipped"
    return "passed"


def main():
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for log in sorted(pathlib.Path(sys.argv[1]).glob("*.log")):
        report = log.with_suffix(".xml")
        if not report.exists() or report.stat().st_size == 0:
            print(f"failed: {log.stem} ended without a report; see {log}")
            counts["failed"] += 1
            continue
        for case in ElementTree.parse(report).iter("testcase"):
            result = outcome(case)
            counts[result] += 1
            if result != "passed":
                group, name = case.get("classname"), case.get("name")
                print(f"{result}: {name if group == name else f'{group} {name}'} ({log})")
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    sys.exit(0 if counts["failed"] == 0 and counts["passed"] > 0 else 1)


if __name__ == "__main__":
    main()

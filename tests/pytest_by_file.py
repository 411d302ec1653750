#!/usr/bin/env python3
"""Runs pytest with processes (pytest-xdist) that each take a file of tests at a time.

    pytest_by_file.py ARGUMENT...     (pytest's arguments; -n is the number of processes)

It differs from `--dist loadfile` in two ways. A test that ends its process has failed; `--dist loadfile` would begin it again in the next
process, which it would end as well, until so many processes had ended that the remaining tests were given up. And the files that take
longest begin first: a long file that begins late would run on alone.
"""

import os
import sys

import pytest
from xdist.scheduler import LoadFileScheduling

# For each folder, the files that take more than a minute, the longest first. Other files begin after them.
LONGEST = [
    *(f"tests/deploy/test_{name}.py" for name in ("gpu_pack", "containers", "release", "wheel", "python_module", "kubernetes_pods", "slurm", "run_suite")),
    *(f"tests/robustness/test_{name}.py" for name in ("resume", "copy", "ranks", "elastic")),
]


class ByFile(LoadFileScheduling):
    def schedule(self):
        super().schedule()
        # A process begins no test before it knows the next test, and it may have only a single test: the rest of a file that another
        # process left.
        for node in self.nodes:
            self._reschedule(node)

    def _reschedule(self, node):
        # A process that still collects is asked again once it is done.
        if node in self.registered_collections:
            super()._reschedule(node)

    def _assign_work_unit(self, node):
        longest = next((file for file in LONGEST if file in self.workqueue), None)
        if longest:
            self.workqueue.move_to_end(longest, last=False)
        try:
            super()._assign_work_unit(node)
        except OSError:
            # The process has ended and nobody knows yet: its new tests stay with the rest of its work, which `remove_node` distributes.
            self.log("ended before it got its next tests:", node)

    def remove_node(self, node):
        files = self.assigned_work[node]
        waiting = [(tests, test) for tests in files.values() for test, done in tests.items() if not done]
        if not waiting:
            return super().remove_node(node)
        tests, ended_it = waiting[0]
        tests[ended_it] = True
        del self.assigned_work[node]
        self.workqueue.update({file: tests for file, tests in files.items() if not all(tests.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return ended_it


class Plugin:
    def pytest_xdist_make_scheduler(self, config, log):
        return ByFile(config, log)


if __name__ == "__main__":
    # Modules are found as by `python -m pytest`.
    sys.path[0] = os.getcwd()
    sys.exit(pytest.main(plugins=[Plugin()]))

#!/usr/bin/env python3
"""pytest whose processes (pytest-xdist) each take a file of tests at a time.

    pytest_by_file.py ARGUMENT...     (as of pytest; -n says how many processes)

As its `--dist loadfile`, but a test that ends its process has failed. There it is begun again by the next process, which it ends as well,
until there have been so many that the tests that are left are given up. And the files that take longest begin first: begun late, one of them
runs on alone.
"""

import os
import sys

import pytest
from xdist.scheduler import LoadFileScheduling

# Of each folder the files that take more than a minute, the longest first. A file that is not named begins behind them.
LONGEST = [
    *(f"tests/deploy/test_{name}.py" for name in ("gpu_pack", "containers", "release", "wheel", "python_module", "kubernetes_pods", "slurm", "run_suite")),
    *(f"tests/robustness/test_{name}.py" for name in ("resume", "copy", "ranks", "elastic")),
]


class ByFile(LoadFileScheduling):
    def schedule(self):
        super().schedule()
        # A process begins no test before it knows the next one, and what it has got may be a single one: what another one left of a file.
        for node in self.nodes:
            self._reschedule(node)

    def _reschedule(self, node):
        # A process that is still collecting is asked again once it is done.
        if node in self.registered_collections:
            super()._reschedule(node)

    def _assign_work_unit(self, node):
        longest = next((file for file in LONGEST if file in self.workqueue), None)
        if longest:
            self.workqueue.move_to_end(longest, last=False)
        try:
            super()._assign_work_unit(node)
        except OSError:
            # The process has ended and nobody has been told yet: what it was to get is left with the rest of its work, which `remove_node` shares out.
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
    # Modules are looked for as by `python -m pytest`.
    sys.path[0] = os.getcwd()
    sys.exit(pytest.main(plugins=[Plugin()]))

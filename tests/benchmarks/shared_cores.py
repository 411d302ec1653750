"""Makes other work on the same cores, as a neighbour on a shared machine does: on each core a process computes for a while, then sleeps.

    with SharedCores(share=0.15): ...

    shared_cores.py SHARE      is one such process, until it is ended
"""

import os
import random
import subprocess
import sys
import time

BURST = 0.005  # seconds on average: more than a time slice, so that a thread that others wait for is delayed


def compute(share):
    drawn = random.Random(1)
    while True:
        end = time.perf_counter() + drawn.uniform(0.2, 1.8) * BURST
        while time.perf_counter() < end:
            pass
        time.sleep(drawn.uniform(0.2, 1.8) * BURST * (1 - share) / share)


class SharedCores:
    def __init__(self, share):
        self.share, self.processes = share, []

    def __enter__(self):
        self.processes = [subprocess.Popen([sys.executable, __file__, str(self.share)]) for _ in range(os.cpu_count())]
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    compute(float(sys.argv[1]))

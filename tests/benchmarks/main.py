"""Runs rows of the benchmark table (see run.sh)."""

import importlib
import os
import pathlib
import platform
import re
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

from duel import Row  # noqa: E402


def order(name):
    digits = re.findall(r"\d+", name)
    return (name[0], int(digits[0]) if digits else 99, name)


def rows():
    """Maps each row to its module name, by files like c1_loss.py and g1_loss.py; two rows have no number."""
    found = {path.stem.split("_")[0].upper(): path.stem for path in FOLDER.glob("[cg][0-9]*_*.py")}
    return {**found, "SCRAPE": "scrape", "COST": "cost_model"}


def machine():
    """Returns one line about the machine of the figures."""
    model = next((line.split(":")[1].strip() for line in subprocess.run(["lscpu"], capture_output=True, text=True).stdout.splitlines()
                  if line.startswith("Model name")), platform.processor())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB; load when started {load:.1f}"


def main():
    known = rows()
    chosen = [name.upper() for name in sys.argv[1:]] or [name for name in sorted(known, key=order) if name[0] != "G"]
    unknown = [name for name in chosen if name not in known]
    if unknown:
        sys.exit(f"no such row: {', '.join(unknown)}; there are {', '.join(sorted(known, key=order))}")
    print(machine(), flush=True)
    for name in chosen:
        importlib.import_module(known[name]).main()
    if Row.failures:
        sys.exit("checks failed: " + "; ".join(Row.failures))


main()

#!/usr/bin/env bash
# Speed and memory of the parts and of a whole run, each against a peer that runs
# in the same process group and takes turns with it; docs/performance.md holds the
# last table.
#
#   tests/benchmarks/run.sh [C1 C2 ... scrape cost]      (default: all rows but G)
#
# A row is tests/benchmarks/<row>_*.py. It checks its result before it times, and
# this fails if a check fails; a missed target is printed, not an error.
# DAPD_BENCHMARK_PAIRS (5): pairs a ratio. Builds nothing: deploy/build.sh --tests.
set -euo pipefail
unset CDPATH  # where cd would look first, and print what it found
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec .deps/venv/bin/python tests/benchmarks/main.py "$@"

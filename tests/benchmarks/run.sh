#!/usr/bin/env bash
# Measures speed and memory of the parts and of a whole run. Each has a peer that runs in
# the same process group and takes turns with it; docs/performance.md has the last table.
#
#   tests/benchmarks/run.sh [C1 C2 ... scrape cost]      (default: all rows but G)
#
# A row is tests/benchmarks/<row>_*.py. It checks its result before it times, and this
# script fails if a check fails; a missed target is printed and is no error.
# DAPD_BENCHMARK_PAIRS (5) is the number of pairs of a ratio. Builds nothing: call
# deploy/build.sh --tests first.
set -euo pipefail
unset CDPATH  # cd would search there first and print what it found
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec .deps/venv/bin/python tests/benchmarks/main.py "$@"

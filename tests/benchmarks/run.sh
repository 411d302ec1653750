#!/usr/bin/env bash
# First measurements of the parts and of a whole run, on this machine:
#
#   tests/benchmarks/run.sh [decode] [score] [step]     (default: all)
#
# decode: tokens/s of greedy decoding; score: tokens/s of full forwards; step: a
# DAPD step through all three services with its phases and peak memory a
# process. Builds nothing: run deploy/build.sh first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec .deps/venv/bin/python tests/benchmarks/measure.py "$@"

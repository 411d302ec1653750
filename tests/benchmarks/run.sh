#!/usr/bin/env bash
# First measurements of the parts and of a whole run, on this machine:
#
#   tests/benchmarks/run.sh [decode] [score] [step] [scrape]     (default: all)
#
# decode: tokens/s of greedy decoding; score: tokens/s of full forwards; step: a
# DAPD step through all three services with its phases and peak memory a
# process; scrape: a step with and without a Prometheus that reads its metrics.
# Builds nothing: run deploy/build.sh first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec .deps/venv/bin/python tests/benchmarks/measure.py "$@"

#!/usr/bin/env bash
# The long form of the robustness tests: many seeds of every fault scenario, random
# kills of everything, fuzzing, sanitizers, damaged files. It ends with one line per
# part; docs/robustness.md has the last report.
#
#   tests/robustness/run.sh [--seeds N] [--fuzz SECONDS] [faults|fuzz|sanitizers|flips]...
#
# The default is all parts, 5 seeds, 60 s per fuzz target, 10,000 flips. The build
# with tests must exist (deploy/build.sh --tests).
set -euo pipefail
unset CDPATH  # cd would search there first and print what it found
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

seeds=5
fuzz_seconds=60
parts=()
while [ $# -gt 0 ]; do
  case "$1" in
    --seeds) seeds=$2; shift 2 ;;
    --fuzz) fuzz_seconds=$2; shift 2 ;;
    faults | fuzz | sanitizers | flips) parts+=("$1"); shift ;;
    *) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done
if [ ${#parts[@]} -eq 0 ]; then parts=(faults flips fuzz sanitizers); fi

logs=build/robustness-logs
mkdir -p "$logs"
code=0
for part in "${parts[@]}"; do
  case "$part" in
    faults)
      # Kills everything at random times, in seeds x 5 cycles.
      command=(env DAPD_SEEDS="$seeds" OMP_NUM_THREADS=1 TQDM_DISABLE=1
        .deps/venv/bin/python -m pytest tests/robustness -q -rA
        -p no:cacheprovider) ;;
    fuzz) command=(tests/fuzz/run.sh "$fuzz_seconds") ;;
    sanitizers) command=(tests/robustness/sanitizers.sh) ;;
    flips) command=(env DAPD_FLIPS=10000 build/bin/dapd_bit_flips_test) ;;
  esac
  start=$SECONDS
  "${command[@]}" > "$logs/$part.log" 2>&1 || code=1
  printf '%-12s %5d s  %s\n' "$part" $((SECONDS - start)) \
    "$(grep -E 'passed|failed|PASSED|FAILED' "$logs/$part.log" | tail -1)"
done
exit $code

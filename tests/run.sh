#!/usr/bin/env bash
# Installs what the tests need, builds, runs the tests and counts them: the last
# line reads "N passed, N failed, N skipped". A test that fails is run once more
# by itself; if it passes then, it counts as passed and is listed before the last
# line, and in build/test-logs/flaky.txt, as flaky. Logs: build/test-logs/.
#
#   tests/run.sh [unit|integration|oracle|robustness|fuzz]...     (default: all)
#
#   unit          the C++ tests that mirror the tree, the scripts' own tests,
#                 dashboards and rules as files
#   integration   real processes (C++ and Python)
#   oracle        our programs against transformers, peft, tokenizers, jinja2
#   robustness    killed, cut off, starved, resumed: the result stays the same
#                 (one seed a scenario; tests/robustness/run.sh has the long form)
#   fuzz          every fuzz target for FUZZ_SECONDS (3) seconds
set -euo pipefail
unset CDPATH  # cd would search there first and print what it found
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source deploy/phase.sh

groups=("$@")
if [ $# -eq 0 ]; then groups=(unit integration oracle robustness fuzz); fi
for group in "${groups[@]}"; do
  case "$group" in
    unit | integration | oracle | robustness | fuzz) ;;
    *) echo "usage: tests/run.sh [unit|integration|oracle|robustness|fuzz]..." >&2; exit 2 ;;
  esac
done

deploy/install.sh --tests
deploy/build.sh --tests

logs=build/test-logs
rm -rf "$logs"
mkdir -p "$logs"

python=.deps/venv/bin/python

run_suite() {  # TITLE NAME KIND ARGUMENT...
  phase "$1" "$logs/$2.log" "$python" tests/run_suite.py "$logs/$2.xml" "${@:3}"
}

# A failing suite does not keep the other suites from running.
export TQDM_DISABLE=1
# Python keeps compiled code here even if the caller's environment forbids it: a process
# that imports transformers spends seconds on compiling. It is not kept beside the
# sources, because tests copy them.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX=$PWD/build/pycache
for group in "${groups[@]}"; do
  case "$group" in
    unit | integration)
      run_suite "$group tests (C++)" "ctest-$group" ctest build "$group" || true ;;
    fuzz)
      run_suite "fuzz targets" fuzz fuzz tests/fuzz/run.sh "${FUZZ_SECONDS:-3}" ||
        true
      continue ;;
  esac
  folders=("tests/$group")
  if [ "$group" = unit ]; then folders=(tests/deploy tests/dashboards); fi
  # There are two processes for each core, since tests wait half of their time; each
  # process takes a few GiB of memory.
  processes=$(($(nproc) < 2 ? 2 : 4))
  run_suite "$group tests (Python)" "pytest-$group" \
    pytest "$processes" "${folders[@]}" || true
done
exec "$python" tests/count_results.py "$logs"

#!/usr/bin/env bash
# Installs what the tests need, builds, runs the tests and counts them: the last
# line reads "N passed, N failed, N skipped". Logs: build/test-logs/.
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

run_ctest() {  # GROUP
  ctest --test-dir build --label-regex "^$1\$" --output-on-failure \
    --timeout 600 --no-tests=ignore --parallel "$(nproc)" \
    --output-junit "$PWD/$logs/ctest-$1.xml"
}

run_pytest() {  # GROUP FOLDER...
  local code=0
  TQDM_DISABLE=1 .deps/venv/bin/python -m pytest "${@:2}" -rA --durations=5 \
    -p no:cacheprovider --junitxml "$logs/pytest-$1.xml" || code=$?
  [ "$code" -eq 5 ] || return "$code"  # 5: no tests there
}

run_fuzz() {
  local code=0
  tests/fuzz/run.sh "${FUZZ_SECONDS:-3}" || code=$?
  cp build-fuzz/report.xml "$logs/fuzz.xml" && return "$code"
}

# A failing group does not keep the others from running.
for group in "${groups[@]}"; do
  if [ "$group" = fuzz ]; then
    phase "fuzz targets" "$logs/fuzz.log" run_fuzz || true
    continue
  fi
  folders=("tests/$group")
  if [ "$group" = unit ]; then folders=(tests/deploy tests/dashboards); fi
  if [ "$group" = unit ] || [ "$group" = integration ]; then
    phase "$group tests (C++)" "$logs/ctest-$group.log" \
      run_ctest "$group" || true
  fi
  phase "$group tests (Python)" "$logs/pytest-$group.log" \
    run_pytest "$group" "${folders[@]}" || true
done
exec .deps/venv/bin/python tests/count_results.py "$logs"

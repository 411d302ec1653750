#!/usr/bin/env bash
# Builds the fuzz targets with clang's libFuzzer, AddressSanitizer and UBSan and
# runs each for some seconds, as many at a time as there are cores.
#
#   tests/fuzz/run.sh [SECONDS [TARGET]...]      (default: 5 s, all targets)
#
# Prints executions, features (coverage) and findings of each, then a line
# "N passed, N failed"; FUZZ_REPORT (build-fuzz/report.xml) has the same as JUnit.
# An input that breaks a target is left in build-fuzz/findings/TARGET/, the command
# that reproduces it is printed, and every later run of the target begins with it.
# The inputs that libFuzzer finds stay in build-fuzz/corpus/, so that a longer run
# goes on where the last run ended. CXX names another clang; FUZZ_SEED fixes the
# mutations' random numbers (default 0: different numbers each time).
set -euo pipefail
unset CDPATH  # cd would search there first and print what it found
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source deploy/phase.sh

seconds=${1:-5}
shift || true
targets=("$@")
if [ $# -eq 0 ]; then
  mapfile -t targets < <(cd tests/fuzz && ls -- *_fuzz.cc | sed 's/_fuzz\.cc$//')
fi
build=build-fuzz
logs=$build/logs
findings=$build/findings
report=${FUZZ_REPORT:-$build/report.xml}
mkdir -p "$logs"

phase "configure the fuzz targets" "$logs/configure.log" \
  cmake -S . -B $build -G Ninja -DCMAKE_CXX_COMPILER="${CXX:-clang++}" \
  -DDAPD_FUZZ=ON -DDAPD_TESTS=OFF -DDAPD_CUDA=OFF
phase "build the fuzz targets" "$logs/build.log" \
  cmake --build $build --parallel "${JOBS:-$(nproc)}" --target dapd_fuzzers

# Memory that an input makes a target ask for beyond the limit is refused, as on a full
# machine.
export ASAN_OPTIONS=allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1

fuzz() {  # TARGET
  local target=$1 learnt=$build/corpus/$1 dictionary=tests/fuzz/dictionaries/$1
  mkdir -p "$learnt" "$findings/$target"
  local options=(-max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048
    -malloc_limit_mb=1024 -max_len=65536 -print_final_stats=1
    -seed="${FUZZ_SEED:-0}"
    -artifact_prefix="$findings/$target/")
  if [ -f "$dictionary" ]; then options+=(-dict="$dictionary"); fi
  "$build/bin/dapd_${target}_fuzz" "${options[@]}" \
    "$learnt" "$findings/$target" "tests/fuzz/corpus/$target" \
    >"$logs/$target.log" 2>&1
}
export -f fuzz
export build logs findings seconds

start=$SECONDS
# A target that fails does not keep the other targets from running.
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I {} bash -c \
  'if fuzz {}; then echo ok; else echo failed; fi >"$logs/{}.result"'

passed=0 failed=0 total=0 cases=
printf '%-20s %12s %9s  %s\n' target executions features result
for target in "${targets[@]}"; do
  log=$logs/$target.log
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  features=$(sed -n 's/^#.* ft: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
  result=$(cat "$logs/$target.result")
  problem=
  if [ "$result" = ok ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    result=$({ grep -aE 'broken invariant|runtime error|SUMMARY' "$log" || true; } |
      head -n 1 | tr -cd '[:print:]' | tr '<>&"' '    ' | cut -c 1-160)
    input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    result="FAILED: ${result:-see $log}; $build/bin/dapd_${target}_fuzz $input"
    # A short input is worth more than its name where the build folder is lost.
    if [ -f "$input" ] && [ "$(stat -c %s "$input")" -le 300 ]; then
      result+="; base64: $(base64 -w 0 "$input")"
    fi
    problem="<failure message=\"$result\">$(tail -c 20000 "$log" |
      tr -cd '[:print:]\n' | tr '<>&' '   ')</failure>"
  fi
  total=$((total + ${executions:-0}))
  cases+="<testcase classname=\"fuzz\" name=\"$target\">$problem</testcase>"
  printf '%-20s %12s %9s  %s\n' "$target" "${executions:-?}" "${features:-?}" "$result"
done
echo "<testsuite name=\"fuzz\">$cases</testsuite>" >"$report"
echo "$total executions in $((SECONDS - start)) s"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

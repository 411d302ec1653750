#!/usr/bin/env bash
# Builds with sanitizers and runs the tests under them.
#
#   tests/robustness/sanitizers.sh [address|thread]...     (default: both)
#
#   address   AddressSanitizer, UBSan and LeakSanitizer over all C++ tests and
#             the integration tests with real processes; build-address/
#   thread    ThreadSanitizer over the concurrent code without LibTorch:
#             queues, RPC, the three services; build-thread/
#
# A report ends the test that caused it. The last line is "N passed, N failed, N
# skipped"; logs are in build-<sanitizer>/test-logs/.
set -euo pipefail
unset CDPATH  # cd would search there first and print what it found
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source deploy/phase.sh

sanitizers=("$@")
if [ $# -eq 0 ]; then sanitizers=(address thread); fi
suppressions=$PWD/tests/robustness
# allocator_may_return_null: tests ask for more memory than any machine has.
export ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1
export LSAN_OPTIONS=suppressions=$suppressions/leak_suppressions.txt:print_suppressions=0
# Debian's gRPC, OpenSSL and Abseil are not instrumented: their own use of memory and
# atomics looks like a race, and is suppressed.
export TSAN_OPTIONS=suppressions=$suppressions/thread_suppressions.txt:second_deadlock_stack=1:ignore_noninstrumented_modules=1

run_ctest() {  # BUILD LABEL
  ctest --test-dir "$1" --label-regex "^$2\$" --output-on-failure \
    --timeout 600 --no-tests=ignore --parallel "$(nproc)" \
    --output-junit "$PWD/$1/test-logs/ctest-$2.xml"
}

run_integration() {  # BUILD
  TQDM_DISABLE=1 DAPD_BIN=$PWD/$1/bin .deps/venv/bin/python -m pytest \
    tests/integration -rA -p no:cacheprovider \
    --junitxml "$1/test-logs/pytest-integration.xml"
}

codes=0
for sanitizer in "${sanitizers[@]}"; do
  build=build-$sanitizer
  rm -rf "$build/test-logs"
  mkdir -p "$build/test-logs"
  phase "configure ($sanitizer)" $build/logs/configure.log \
    cmake -S . -B $build -G Ninja -DDAPD_SANITIZE="$sanitizer" \
    -DDAPD_TESTS=ON -DDAPD_CUDA=OFF
  case "$sanitizer" in
    address)
      phase "build ($sanitizer)" $build/logs/build.log \
        cmake --build $build --parallel "${JOBS:-$(nproc)}"
      phase "C++ tests ($sanitizer)" $build/test-logs/ctest-unit.log \
        run_ctest $build unit || true
      phase "more C++ tests ($sanitizer)" $build/test-logs/ctest-integration.log \
        run_ctest $build integration || true
      phase "integration tests ($sanitizer)" \
        $build/test-logs/pytest-integration.log run_integration $build || true
      ;;
    thread)
      targets=(dapd_base_test dapd_security_test dapd_metrics_test dapd_rpc_test
        dapd_rollout_service_test dapd_teacher_service_test
        dapd_trainer_service_test)
      phase "build ($sanitizer)" $build/logs/build.log \
        cmake --build $build --parallel "${JOBS:-$(nproc)}" --target "${targets[@]}"
      for target in "${targets[@]}"; do
        phase "$target ($sanitizer)" $build/test-logs/$target.log \
          $build/bin/$target --gtest_output=xml:$build/test-logs/$target.xml || true
      done
      ;;
    *) echo "usage: tests/robustness/sanitizers.sh [address|thread]..." >&2; exit 2 ;;
  esac
  .deps/venv/bin/python tests/count_results.py $build/test-logs || codes=1
done
exit $codes

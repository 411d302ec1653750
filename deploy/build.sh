#!/usr/bin/env bash
# Configures and builds into build/; the programs are written to build/bin/.
#
#   deploy/build.sh [--tests]
#
# --tests builds the unit tests too. JOBS sets how many compilers run at a time
# (default: one per core, if each has 2 GiB of memory).
set -euo pipefail
unset CDPATH  # cd would search there first and print what it found
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source deploy/phase.sh

case "$*" in
  --tests) tests=ON ;;
  "") tests=OFF ;;
  *) echo "usage: deploy/build.sh [--tests]" >&2; exit 2 ;;
esac

default_jobs() {
  local cores gibibytes
  cores=$(nproc)
  gibibytes=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
  echo $((gibibytes / 2 < 1 ? 1 : gibibytes / 2 < cores ? gibibytes / 2 : cores))
}

# Without a home, or with one that it cannot write, ccache compiles nothing. A user that
# a container or a batch system starts may have such a home.
export HOME=${HOME:-$PWD/.deps}
if [ ! -w "$HOME" ]; then export CCACHE_DIR=${CCACHE_DIR:-$PWD/.deps/ccache}; fi

phase "configure" build/logs/configure.log \
  cmake -S . -B build -G Ninja -DDAPD_TESTS=$tests
phase "build" build/logs/build.log \
  cmake --build build --parallel "${JOBS:-$(default_jobs)}"

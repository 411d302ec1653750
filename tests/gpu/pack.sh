#!/usr/bin/env bash
# Packs what proves the CUDA path on another machine: programs, the tests that need a
# GPU, benchmark rows with their peers, and the libraries that a bare machine lacks,
# except torch's. run.sh in OUT runs it there.
#
#   tests/gpu/pack.sh [--ranks] [--python X.Y] [--level N] [--most MIB] OUT
#
# --ranks    a pack for the stage "ranks" alone: the services and an NCCL that joins
#            several ranks on one GPU (H100, H200), without tests and peers
# --python   version on the machine with the GPU, for the peers' compiled modules (3.12)
# --level    of xz, 0 to 9 (6, which takes two minutes of a core)
# --most     size of OUT in MiB (50); peers that do not fit are left out and named
#
# Needs deploy/install.sh --tests, deploy/build.sh --tests with CUDA kernels, and PyPI
# for the peers, once. An OUT with a pack in it is replaced.
set -euo pipefail
unset CDPATH  # cd would search there first and print what it found
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

usage() {
  echo "usage: tests/gpu/pack.sh [--ranks] [--python X.Y] [--level N]" \
    "[--most MIB] OUT" >&2
  exit 2
}

python=3.12 level=6 ranks=() most=50
while [ $# -gt 1 ]; do
  case "$1" in
    --ranks) ranks=(--ranks); shift; continue ;;
    --python) [[ $2 =~ ^3\.[0-9]+$ ]] || usage; python=$2 ;;
    --level) [[ $2 =~ ^[0-9]$ ]] || usage; level=$2 ;;
    --most) [[ $2 =~ ^[1-9][0-9]{0,3}$ ]] || usage; most=$2 ;;
    *) usage ;;
  esac
  shift 2
done
if [ $# -ne 1 ] || [[ $1 == -* ]]; then usage; fi
exec "$root/.deps/venv/bin/python" "$root/tests/gpu/pack.py" "$python" "$level" \
  "$most" "$1" ${ranks[@]+"${ranks[@]}"}

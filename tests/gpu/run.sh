#!/usr/bin/env bash
# Proves the CUDA path on a machine with a GPU, from a pack that pack.sh made: parity,
# determinism, the rows G1 to G8 and a whole run, with one JSON file and one text file
# of results. It needs Python with the torch that the programs were built with, and
# nothing else: no network, no root.
#
#   tests/gpu/run.sh [--pack PACK] [--results FOLDER] [--seconds N] [--total N]
#                    [--rehearse] [STAGE...]
#
# --pack      the folder that pack.sh made (default: the folder of this script)
# --results   gets results.json, results.txt and log.txt (default: gpu-results);
#             stages that ran before stay in them, unless they run again
# --seconds   time limit of a stage (540)
# --total     time limit of all stages of this call together (none), for a machine
#             that is lent for a time: a stage gets the rest, and none begins with
#             less than a minute
# --rehearse  replaces the GPU by the CPU, at small sizes, where a stage can: this
#             shows that the stages work, and nothing about a GPU
#
# Stages, in this order: kernels parity run determinism ranks G5 G6 G1 G2 G3 G4 G7 G8
# profile sanitizer. If one fails, the others still run, and the findings of each are in FOLDER
# at once. It ends with 0 if all requested stages passed (missed targets included), 1 if
# not, 2 for wrong usage.
#
# DAPD_PYTHON names the interpreter, DAPD_GPU_WORK a folder for models and the unpacked
# pack (30 GB; default: below TMPDIR), which one call at a time can use.
set -euo pipefail

usage() {
  echo "usage: tests/gpu/run.sh [--pack PACK] [--results FOLDER] [--seconds N]" \
    "[--total N] [--rehearse] [STAGE...]" >&2
  exit 2
}

unset CDPATH  # cd would search there first and print what it found
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pack=$here results=gpu-results seconds=540 total='' rehearse=()
while [[ ${1:-} == -* ]]; do
  case "$1" in
    --pack | --results | --seconds | --total) [ $# -gt 1 ] || usage ;;&
    --pack) pack=$2 ;;
    --results) results=$2 ;;
    --seconds) [[ $2 =~ ^[1-9][0-9]{0,5}$ ]] || usage; seconds=$2 ;;
    --total) [[ $2 =~ ^[1-9][0-9]{0,5}$ ]] || usage; total=$2 ;;
    --rehearse) rehearse=(--rehearse); shift; continue ;;
    *) usage ;;
  esac
  shift 2
done

has_torch() {
  "$1" -c 'import importlib.util, lzma, sys
sys.exit(sys.version_info < (3, 10) or importlib.util.find_spec("torch") is None)' 2>/dev/null
}

python='' candidates=(python3 python)
if [ -n "${DAPD_PYTHON:-}" ]; then candidates=("$DAPD_PYTHON"); fi
for candidate in "${candidates[@]}"; do
  if has_torch "$candidate"; then python=$(command -v "$candidate"); break; fi
done
if [ -z "$python" ]; then
  echo "neither ${DAPD_PYTHON:-python3 nor python} is a Python 3.10 or newer with" \
    "torch and lzma; name one with DAPD_PYTHON=/path/to/python" >&2
  exit 1
fi

work=${DAPD_GPU_WORK:-${TMPDIR:-/tmp}/dapd-gpu-$(id -u)}
mkdir -p "$work" "$results"
# Where everybody may write, another user may have made the folder of this name, and its
# content would be run.
if [ -z "${DAPD_GPU_WORK:-}" ] && { [ -L "$work" ] || [ ! -O "$work" ]; }; then
  echo "$work is a link or another user's; name a folder of yours with DAPD_GPU_WORK" >&2
  exit 1
fi
# Two calls would remove each other's files at the end of every stage.
exec 9>"$work/lock"
flock --nonblock 9 || {
  echo "another call uses $work; name another folder with DAPD_GPU_WORK, or wait" >&2
  exit 1
}
tree=$("$python" "$here/unpack.py" "$pack" "$work")
# Unpacking took a part of the call's time.
left=$((${total:-0} - SECONDS))
exec "$python" "$tree/tests/gpu/run.py" "$work" "$results" "$seconds" \
  ${total:+--total "$((left > 1 ? left : 1))"} ${rehearse[@]+"${rehearse[@]}"} "$@"

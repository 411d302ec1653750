#!/bin/sh
# Runs the packed program with the name of this link, with the pack's libraries and
# those of the torch that machine.py found. Only our programs see them: Python keeps its
# own.
unset CDPATH  # cd would search there first and print what it found
here=$(cd "$(dirname "$0")/.." && pwd)
LD_LIBRARY_PATH=$(cat "$here/library_path")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
# Another NCCL than torch's, for the stage "ranks".
if [ -n "${DAPD_NCCL:-}" ]; then
  LD_PRELOAD=$DAPD_NCCL${LD_PRELOAD:+:$LD_PRELOAD}
  export LD_PRELOAD
fi
exec "$here/programs/bin/$(basename "$0")" "$@"

#!/bin/sh
# Runs the packed program with the name of this link, with the pack's libraries and
# those of the torch that machine.py found. Only our programs see them: Python keeps its
# own.
unset CDPATH  # cd would search there first and print what it found
here=$(cd "$(dirname "$0")/.." && pwd)
LD_LIBRARY_PATH=$(cat "$here/library_path")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec "$here/programs/bin/$(basename "$0")" "$@"

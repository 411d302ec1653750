#!/usr/bin/env bash
# Makes a folder that runs on any Debian of this release without the source tree and its
# Python environment: it has the programs in bin/, the libraries of Python wheels in
# lib/, the presets in configs/ and the demonstration's model and problems in demo/.
#
#   deploy/package.sh [--cuda] FOLDER
#
# It needs the results of deploy/install.sh and deploy/build.sh; --cuda adds the CUDA
# backend and its libraries (3 GB). Images, and machines that share a file system, use
# the folder as it is. The call replaces what an earlier call wrote there.
set -euo pipefail
components=(programs)
if [ "${1:-}" = --cuda ]; then components+=(cuda); shift; fi
if [ $# -ne 1 ] || [[ $1 == -* ]]; then
  echo "usage: deploy/package.sh [--cuda] FOLDER" >&2
  exit 2
fi
mkdir -p "$1"
package=$(realpath "$1")
unset CDPATH  # cd would search there first and print what it found
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# These names are common: /, /usr/local and many home folders have them.
for name in bin lib configs demo; do
  if [ -e "$package/$name" ] && ! compgen -G "$package/bin/dapd*" >/dev/null; then
    echo "$package/$name was not made by this script, which would remove it; choose another folder" >&2
    exit 1
  fi
done
rm -rf "${package:?}"/{bin,lib,configs,demo}
for component in "${components[@]}"; do
  cmake --install build --prefix "$package" --component "$component"
done
if [ "${components[-1]}" = cuda ] && [ ! -e "$package/lib/libdapd_cuda.so" ]; then
  echo "build/ has no CUDA backend; run deploy/install.sh --cuda and deploy/build.sh" >&2
  exit 1
fi
# The programs keep the names of their functions for the stack trace of a crash.
find "$package/bin" -type f -exec strip --strip-debug {} +
find "$package/lib" -type f -exec strip --strip-unneeded {} +

cp -r configs "$package/configs"
.deps/venv/bin/python deploy/make_tiny_model.py --output "$package/demo/tiny-qwen3"
for split in train:1000 held_out:100; do
  "$package/bin/dapd" problems --task unit_conversion --split "${split%:*}" \
    --count "${split#*:}" --seed 1 --output "$package/demo/${split%:*}.jsonl"
done

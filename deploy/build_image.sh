#!/usr/bin/env bash
# Builds the run image on this machine's Docker Engine.
#
#   deploy/build_image.sh [--installed FOLDER] [--base IMAGE] [--tag NAME] [cpu|cuda]
#
# --installed takes the programs of a folder that deploy/package.sh made on the same
# Debian release, instead of compiling them in a container. --base names a Debian of
# your registry. The tag is dapd:cpu or dapd:cuda unless given.
set -euo pipefail
usage() {
  echo "usage: deploy/build_image.sh [--installed FOLDER] [--base IMAGE] [--tag NAME] [cpu|cuda]" >&2
  exit 2
}
installed='' base='' tag='' target=cpu
while [ $# -gt 0 ]; do
  case "$1" in
    --installed | --base | --tag)
      [ $# -ge 2 ] || usage
      printf -v "${1#--}" %s "$2"
      shift
      ;;
    cpu | cuda) target=$1 ;;
    *) usage ;;
  esac
  shift
done
if [ -n "$installed" ]; then installed=$(realpath "$installed"); fi
unset CDPATH  # cd would search there first and print what it found
cd "$(dirname "${BASH_SOURCE[0]}")/.."

arguments=(--file deploy/Dockerfile --target "$target" --tag "${tag:-dapd:$target}")
commit=${DAPD_COMMIT:-$(git describe --tags --always --dirty 2>/dev/null || true)}
if [ -n "$commit" ]; then arguments+=(--build-arg "DAPD_COMMIT=$commit"); fi
if [ -n "$base" ]; then arguments+=(--build-arg "BASE=$base"); fi
if [ -z "$installed" ]; then exec docker build "${arguments[@]}" .; fi

# The archive has all files that the build then reads.
tar --create --file - deploy/Dockerfile deploy/stage_image.sh deploy/stage_libraries.sh \
  --directory "$installed" --transform 's,^\./,installed/,' . |
  docker build "${arguments[@]}" --build-arg INSTALLED=installed -

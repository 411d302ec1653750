#!/usr/bin/env bash
# Lays out what a run image needs to copy checkpoints: this machine's Python 3 with the
# packages of a virtual environment, where the programs look for it, and the shared
# libraries that both load and the image lacks.
#
#   deploy/stage_python.sh VENV IMAGE ROOT
#
# VENV was made by this machine's python3 and has deploy/requirements-copy.txt. IMAGE is
# the run image's root file system, or a folder with its usr/lib only, of the same
# Debian release. ROOT becomes the layer that is put on top of it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/stage_libraries.sh"
if [ $# -ne 3 ]; then
  echo "usage: deploy/stage_python.sh VENV IMAGE ROOT" >&2
  exit 2
fi
venv=$(realpath "$1")
image=$(realpath "$2")
if ! "$venv/bin/python" -c 'import fsspec, gcsfs, s3fs'; then
  echo "$venv lacks packages of deploy/requirements-copy.txt" >&2
  exit 1
fi
python=$(realpath "$venv/bin/python")
name=${python##*/}  # python3.11
mkdir -p "$3"
root=$(realpath "$3")

cd "$root"
home=opt/dapd/.deps/venv
mkdir -p usr/bin usr/lib "$home/bin" "$home/lib/$name"
cp "$python" usr/bin/
cp -r "/usr/lib/$name" usr/lib/
ln -s "$name" usr/bin/python3
# The copies need none of these.
rm -rf usr/lib/"$name"/{ensurepip,idlelib,lib2to3,pydoc_data,test,tkinter,turtledemo} \
  usr/lib/"$name"/config-"${name#python}"-*
cp -r "$venv/lib/$name/site-packages" "$home/lib/$name/"
rm -rf "$home/lib/$name/site-packages"/{pip,setuptools}{,-[0-9]*}
ln -s /usr/bin/python3 "$home/bin/python"
printf '%s\n' 'home = /usr/bin' 'include-system-site-packages = false' >"$home/pyvenv.cfg"

libraries=$(libraries_of "$root" usr opt)
taken=()
for library in $libraries; do
  folder=$(realpath "$(dirname "$library")")
  if [ -e "$image$folder/${library##*/}" ]; then continue; fi
  mkdir -p "$root$folder"
  cp -L "$library" "$root$folder/"
  taken+=("$library")
done
for name in $(packages_of "$python" "/usr/lib/$name/os.py" "/usr/lib/$name/asyncio/__init__.py" "${taken[@]}"); do
  keep_package "$name"
done

#!/bin/sh
# Starts the program of this file's name in ../libexec with the libraries in ../lib and
# those of torch, which lies beside the package: in the same site-packages, or where
# DAPD_TORCH says. deploy/release/make_wheel.py makes one of these for each program of
# the wheel.
#
# A program whose libraries do not load would end with the loader's message, which only
# names a file. So this script looks for the libraries first and says in one line what
# is wrong.
set -eu
self=$(readlink -f -- "$0")
root=${self%/*/*}
torch=${DAPD_TORCH:-${root%/*}/torch}
series=TORCH_SERIES
name=${self##*/}
fail() {
  echo "$name: $1" >&2
  exit 3
}
case $root:$torch in
  *\;* | *:*:*) fail "$root and $torch: a folder of libraries cannot have ':' or ';' in its path; move the environment" ;;
esac

[ -d "$torch" ] ||
  fail "torch is missing: the libraries of torch $series are not in $torch; pip install 'torch==$series.*'"
version=$(sed -n "s/^__version__ = '\(.*\)'.*/\1/p" "$torch/version.py" 2>/dev/null) || version=
again="pip install --force-reinstall 'torch==$series.*'"
[ -n "$version" ] || fail "$torch is only half installed: it has no version.py; $again"
case $version in
  "$series" | "$series".*) ;;
  *) fail "$torch is torch $version, and this package was built for torch $series; pip install 'torch==$series.*'" ;;
esac

# This finds the files of an interrupted installation: an ELF file ends after its table
# of sections, whose place is in bytes 40 to 47.
for library in "$torch"/lib/libc10*.so "$torch"/lib/libtorch_c*.so; do
  [ -f "$library" ] || continue
  table=$(od -An -tu8 -j40 -N8 "$library" 2>/dev/null) || table=
  [ "$(wc -c <"$library")" -gt $((${table:-0})) ] ||
    fail "$torch is only half installed: $library is cut off; $again"
done

libraries=$root/lib:$torch/lib
for folder in "${torch%/*}"/nvidia/*/lib; do
  [ -d "$folder" ] && libraries=$libraries:$folder
done
# Containers name the folder of the GPU's driver in LD_LIBRARY_PATH.
libraries=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
loader=/lib64/ld-linux-x86-64.so.2
program=$root/libexec/$name
if ! found=$("$loader" --library-path "$libraries" --list "$program" 2>&1); then
  fail "$torch is only half installed: ${found##*error while loading shared libraries: }; $again"
fi
# Waiting threads of a service then sleep. A service that is not started through this
# loader sets the variable itself (common/base/passive_threads.cc).
case $name in
  dapd-*) export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-PASSIVE}" ;;
esac
exec "$loader" --argv0 "$0" --library-path "$libraries" "$program" "$@"

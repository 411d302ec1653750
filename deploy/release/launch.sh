#!/bin/sh
# Starts the program of this file's name in ../libexec with the libraries in ../lib.
# deploy/release/lay_out.py makes one of these for each program.
#
# It takes the newer of two C libraries: this machine's, which the machine's own
# libraries for devices may need (a GPU's driver, RDMA), or the release's, if this
# machine's is older than GLIBC_VERSION or is not glibc. No path is built in: the folder
# may lie anywhere, and links may point to it.
set -eu
self=$(readlink -f -- "$0")
root=${self%/*/*}
case $root in
  *[:\;]*)
    echo "$root: a folder of libraries cannot have ':' or ';' in its path; move it" >&2
    exit 1
    ;;
esac

loader=/lib64/ld-linux-x86-64.so.2
libraries=$root/lib
machine=$(getconf GNU_LIBC_VERSION 2>/dev/null) || machine=
machine=${machine#glibc 2.}
case $machine in *[!0-9]*) machine=${machine%%[!0-9]*} ;; esac
needed=GLIBC_VERSION
if [ "${machine:-0}" -lt "${needed#2.}" ] || [ ! -x "$loader" ]; then
  loader=$root/lib/glibc/ld-linux-x86-64.so.2
  libraries=$root/lib/glibc:$libraries
fi
# Waiting threads of a service then sleep. A service that is not started through this
# loader sets the variable itself (common/base/passive_threads.cc).
case ${self##*/} in
  dapd-*) export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-PASSIVE}" ;;
esac
# Containers name the folder of the GPU's driver in LD_LIBRARY_PATH.
exec "$loader" --argv0 "$0" \
  --library-path "$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
  "$root/libexec/${self##*/}" "$@"

#!/bin/sh
# Starts the program of this file's name in ../libexec with the libraries in
# ../lib. deploy/release/lay_out.py makes one of these for each program.
#
# The C library is the newer of two: this machine's, which its own libraries for
# devices may need (a GPU's driver, RDMA), or the release's, where this machine's
# is older than GLIBC_VERSION, or another one. No path is built in: the folder may
# lie anywhere, and be linked to.
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
# Containers say with LD_LIBRARY_PATH where they have the GPU's driver.
# As a service does for itself where no loader is started in its place
# (common/base/passive_threads.cc).
case ${self##*/} in
  dapd-*) export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-PASSIVE}" ;;
esac
exec "$loader" --argv0 "$0" \
  --library-path "$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
  "$root/libexec/${self##*/}" "$@"

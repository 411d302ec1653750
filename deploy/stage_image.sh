#!/usr/bin/env bash
# Lays out the root file system of the run image: a folder of deploy/package.sh, the
# shared libraries of this machine that its programs load, certificate authorities, and
# the few files that a C library looks for.
#
#   deploy/stage_image.sh [--cuda] PACKAGE ROOT
#
# --cuda is for the CUDA image; it fails if PACKAGE has no CUDA or no kernels of its
# own.
#
# Each Debian package that a library comes from leaves its status and its licence, where
# scanners and people look for them.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/stage_libraries.sh"
is_cuda=
if [ "${1:-}" = --cuda ]; then is_cuda=yes; shift; fi
if [ $# -ne 2 ]; then
  echo "usage: deploy/stage_image.sh [--cuda] PACKAGE ROOT" >&2
  exit 2
fi
package=$(realpath "$1")
if [ -n "$is_cuda" ]; then
  backend=$package/lib/libdapd_cuda.so
  if [ ! -e "$backend" ]; then
    echo "$package has no CUDA backend; make the package with deploy/package.sh --cuda" >&2
    exit 1
  fi
  # This function launches one of the kernels.
  if ! grep -q DapdCudaDivergence "$backend"; then
    echo "$backend was built without nvcc, and has no kernels" >&2
    exit 1
  fi
fi
mkdir -p "$2"
root=$(realpath "$2")

cd "$root"
mkdir -p etc/ssl/certs input opt runs tmp usr/lib usr/lib64 usr/share/doc \
  var/lib/dpkg/status.d
chmod 1777 tmp
ln -s usr/lib lib
ln -s usr/lib64 lib64
cp -r "$package" opt/dapd
mv opt/dapd/configs etc/dapd
# Containers do not run as the user who made the package, and that user's mask may keep
# others out.
chmod -R u=rwX,go=rX opt/dapd etc/dapd

# The NVIDIA driver's library comes with the driver.
libraries=$(libraries_of "$root" opt/dapd/bin opt/dapd/lib)
for library in $libraries; do
  folder=$root$(realpath "$(dirname "$library")")
  mkdir -p "$folder"
  cp -L "$library" "$folder/"
done

for name in $(packages_of $libraries) ca-certificates; do keep_package "$name"; done

cp -L /etc/ssl/certs/ca-certificates.crt etc/ssl/certs/
cp /etc/os-release etc/
echo 'hosts: files dns' >etc/nsswitch.conf
printf '%s\n' 'root:x:0:0::/:/none' 'dapd:x:10001:10001::/runs:/none' >etc/passwd
printf '%s\n' 'root:x:0:' 'dapd:x:10001:' >etc/group

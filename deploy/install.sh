#!/usr/bin/env bash
# Installs on Debian 12 what the build needs and the machine does not have yet: Debian
# packages (as root or with sudo) and a Python environment in .deps/venv, which brings
# LibTorch, Apache Arrow C++ and the demo model.
#
#   deploy/install.sh [--tests|--cuda|--grading|--copy|--follow|--release]
#
# --cuda adds torch's CUDA libraries, nvcc (3 GB) and the source of FlashAttention-3 (30
# MB), with which the build makes the CUDA backend; no toolkit is needed. A machine with an NVIDIA driver that is new enough
# gets them without the flag. --tests adds what the tests need, among it Python's torch
# and transformers (4 GB). --grading adds only math-verify, for `dapd grade`. --copy
# adds fsspec with its clients of S3 and Google's storage, for checkpoint.copy_to and
# `dapd restore`. --follow adds the clients of Weights & Biases and MLflow for
# deploy/follow.py. --release adds what deploy/release.sh writes its list of parts with.
# Without root and sudo the script prints what root has to run. A second call skips what
# is installed. PYTHON names another interpreter (3.11 or newer).
set -euo pipefail
unset CDPATH  # cd would search there first and print what it found
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source deploy/phase.sh

packages=(
  build-essential ca-certificates ccache cmake ninja-build pkg-config python3
  python3-venv
  libabsl-dev libcli11-dev libcpp-httplib-dev libcurl4-openssl-dev libgrpc++-dev libgrpc-dev
  libicu-dev libprotobuf-dev libssl-dev libxxhash-dev libyaml-cpp-dev nlohmann-json3-dev openssl
  prometheus-cpp-dev protobuf-compiler protobuf-compiler-grpc zlib1g-dev
)
requirements=(deploy/requirements.txt)
test_packages=(
  bubblewrap chromium clang clang-format clang-tidy debootstrap iproute2 libbenchmark-dev
  libclang-rt-dev libgmock-dev libgtest-dev prometheus qemu-user shellcheck
)
# Debian's engine would replace another one.
command -v dockerd >/dev/null || test_packages+=(docker.io)
command -v docker-compose >/dev/null || test_packages+=(docker-compose)

# Prints the series of the loaded NVIDIA driver, "580" of 580.82.07; 0 if there is none.
# Tests pass another file.
driver_series() {
  local file=${NVIDIA_VERSION_FILE:-/proc/driver/nvidia/version} series=
  if [ -r "$file" ]; then
    series=$(sed -n '1s/.*[^0-9.]\([0-9]\+\)\.[0-9.]\+ .*/\1/p' "$file")
  fi
  echo "${series:-0}"
}
least_driver=580  # of CUDA 13

# Each call takes one flag; a second flag is refused and not ignored.
case "$*" in
  --tests)
    packages+=("${test_packages[@]}")
    requirements+=(deploy/requirements-cuda.txt deploy/requirements-copy.txt
      deploy/requirements-follow.txt deploy/requirements-release.txt tests/requirements.txt)
    ;;
  --cuda)
    requirements+=(deploy/requirements-cuda.txt)
    driver=$(driver_series)
    if [ "$driver" -gt 0 ] && [ "$driver" -lt "$least_driver" ]; then
      echo "this machine's NVIDIA driver is of series $driver: programs built here run" \
        "on GPUs with a driver of $least_driver or newer" >&2
    fi
    ;;
  --grading) requirements+=(deploy/requirements-grading.txt) ;;
  --copy) requirements+=(deploy/requirements-copy.txt) ;;
  --follow) requirements+=(deploy/requirements-follow.txt) ;;
  --release) requirements+=(deploy/requirements-release.txt) ;;
  "")
    if [ "$(driver_series)" -ge "$least_driver" ]; then
      requirements+=(deploy/requirements-cuda.txt)
    fi
    ;;
  *) echo "usage: deploy/install.sh [--tests|--cuda|--grading|--copy|--follow|--release]" >&2; exit 2 ;;
esac

# --- Debian packages ----------------------------------------------------------
missing_packages() {
  comm -23 <(printf '%s\n' "${packages[@]}" | sort) \
    <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" \
      2>/dev/null | sed -n 's/^installed //p' | sort -u)
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Tests start the servers among the packages themselves. Debian's policy file keeps dpkg
# from starting them, which would fail on machines that start no services.
apt_install() {
  local policy=/usr/sbin/policy-rc.d code=0
  if [ -e "$policy" ]; then
    policy=
  else
    # If an interrupted call left the file behind, later installations on this machine
    # could not start their services.
    trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" &&
      as_root chmod 755 "$policy" || return
  fi
  as_root apt-get update -q &&
    as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -q --no-install-recommends "$@" || code=$?
  if [ -n "$policy" ]; then
    as_root rm -f "$policy"
    trap - EXIT
  fi
  return "$code"
}

disable_service() { as_root systemctl disable "$1"; }

# Returns whether this user may become root. If a person can answer, it asks for the
# password now.
may_be_root() {
  [ "$(id -u)" -eq 0 ] && return
  command -v sudo >/dev/null || return
  if [ -t 0 ]; then sudo -v; else sudo -n true 2>/dev/null; fi
}

mapfile -t missing < <(missing_packages)
if [ ${#missing[@]} -gt 0 ]; then
  if ! may_be_root; then
    echo "Debian packages are missing and you cannot use sudo. Run as root:" >&2
    echo "  apt-get update && apt-get install -y ${missing[*]}" >&2
    echo "The names are those of Debian 12; Ubuntu 24.04 has the same. Then run this script again." >&2
    exit 1
  fi
  phase "install ${#missing[@]} Debian packages" .deps/logs/apt.log \
    apt_install "${missing[@]}"
  for package in docker.io prometheus; do
    if [[ " ${missing[*]} " == *" $package "* && -d /run/systemd/system ]]; then
      phase "disable $package as a service" ".deps/logs/$package.log" \
        disable_service "${package%.io}"
    fi
  done
fi

# --- Python packages ----------------------------------------------------------
venv=.deps/venv

make_venv() {
  local python pythons=(/usr/bin/python3 python3)
  if [ -n "${PYTHON:-}" ]; then pythons=("$PYTHON"); fi
  for python in "${pythons[@]}"; do
    if "$python" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))'; then
      # This folder says that the environment is complete: Python is in it before pip
      # is.
      "$python" -m venv --clear "$venv" && mkdir "$venv/installed"
      return
    fi
  done
  echo "no Python 3.11 or newer with the venv module was found" >&2
  return 1
}

# A requirements file is installed if its copy in the environment is the same.
is_installed() { cmp -s "$1" "$venv/installed/${1//\//-}"; }

install_requirements() {
  "$venv/bin/python" -m pip install --no-deps --no-compile --no-input \
    --disable-pip-version-check --progress-bar off -r "$1" &&
    cp "$1" "$venv/installed/${1//\//-}"
}

if [ ! -d "$venv/installed" ] || ! "$venv/bin/python" -c '' 2>/dev/null; then
  phase "make $venv" .deps/logs/venv.log make_venv
fi
for file in "${requirements[@]}"; do
  if ! is_installed "$file"; then
    phase "install $file" ".deps/logs/${file//\//-}.log" \
      install_requirements "$file"
  fi
done

# --- FlashAttention-3's source, where CUDA is installed -------------------------
flash_attention=.deps/flash-attention-3
if [[ " ${requirements[*]} " == *" deploy/requirements-cuda.txt "* ]] &&
  ! cmp -s deploy/fetch_flash_attention.py "$flash_attention/fetched-by.py"; then
  phase "fetch FlashAttention-3" .deps/logs/flash-attention-3.log \
    "$venv/bin/python" deploy/fetch_flash_attention.py "$flash_attention"
fi

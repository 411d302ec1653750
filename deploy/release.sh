#!/usr/bin/env bash
# Makes the release of this commit: for each flavour a tarball that runs wherever it is
# unpacked, and with --images an image for `docker load`; and a wheel for pip, which
# takes LibTorch and CUDA from the environment's torch. The same commit should give the
# same bytes (docs/install.md says how far this is shown).
#
#   deploy/release.sh [--output FOLDER] [--images [--base IMAGE]]
#                     [--update-lock|--unlocked] [--installed PACKAGE]
#                     [cpu] [cuda] [wheel]
#
# Without names it makes both flavours and the wheel. --output is dist by default. The
# Debian packages of this machine must match deploy/release/debian.lock;
# --update-lock writes the file anew, --unlocked accepts other packages. --base names a
# Debian 12 of your registry for the images. --installed packs the result of
# deploy/package.sh, of any flavour, as a tarball, or with `wheel` as a wheel, and
# compiles nothing. Needs deploy/install.sh with --cuda and with --release.
set -euo pipefail
usage() {
  sed -n 's/^#   \(deploy.*\)/usage: \1/p; s/^#      *\(\[.*\)/  \1/p' "$0" >&2
  exit 2
}
output=dist installed='' base='' lock=obey images=false wheel=false flavours=()
while [ $# -gt 0 ]; do
  case "$1" in
    --output | --installed | --base)
      [ $# -ge 2 ] || usage
      printf -v "${1#--}" %s "$2"
      shift
      ;;
    --images) images=true ;;
    --update-lock) lock=update ;;
    --unlocked) lock=ignore ;;
    cpu | cuda) flavours+=("$1") ;;
    wheel) wheel=true ;;
    *) usage ;;
  esac
  shift
done
umask 022
export LC_ALL=C TZ=UTC
if [ -n "$installed" ]; then
  [ ${#flavours[@]} -eq 0 ] || usage
  installed=$(realpath "$installed")
  has=cpu
  if [ -e "$installed/lib/libdapd_cuda.so" ]; then has=cuda; fi
  if ! $wheel; then flavours=("$has"); fi
elif [ ${#flavours[@]} -eq 0 ] && ! $wheel; then
  flavours=(cpu cuda) wheel=true
fi
if $images && [ ${#flavours[@]} -eq 0 ]; then usage; fi
mkdir -p "$output"
output=$(realpath "$output")
unset CDPATH  # cd would search there first and print what it found
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source deploy/phase.sh
python=$PWD/.deps/venv/bin/python
if ! "$python" -c 'import cyclonedx' 2>/dev/null; then
  echo "cyclonedx-python-lib is missing; run deploy/install.sh --release" >&2
  exit 1
fi
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

if [ -z "$installed" ] && [ -n "$(git status --porcelain)" ]; then
  echo "the working tree differs from its commit; a release is made from a commit" >&2
  exit 1
fi

logs=$output/logs
mkdir -p "$logs"
# Files that are written aside there have the names of the final files.
exec 8>"$logs/lock"
flock --nonblock 8 || { echo "$logs/lock: another release is being made there" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# --- The programs ---------------------------------------------------------------
# Compilers write the path of the sources into the objects, nvcc even into names, so the
# sources always lie at the same path. Where ccache is installed it would replace them
# by relative paths, so it is not used. nvcc's names of temporary files are in the
# library's symbol table, from which the linker makes build ids, so the library has no
# symbol table. The programs keep theirs for the stack trace of a crash.
place=/var/tmp/dapd-release
compile() (
  cd "$place/source" &&
    DAPD_COMMIT=$commit cmake -S . -B build -G Ninja \
      -DCMAKE_EXE_LINKER_FLAGS=-Wl,--strip-debug -DCMAKE_SHARED_LINKER_FLAGS=-Wl,--strip-all \
      -DDAPD_TESTS=OFF -DCCACHE:BOOL=OFF -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON \
      -DDAPD_CUDA="$1" &&
    DAPD_COMMIT=$commit deploy/build.sh
)
pack() (
  flags=()
  if [ "$1" = cuda ]; then flags=(--cuda); fi
  cd "$place/source" && deploy/package.sh "${flags[@]}" "$work/package-$1"
)
if [ -z "$installed" ]; then
  commit=$(git describe --tags --always --abbrev=12)
  # Other users may write in the parent folder: a link of theirs would lead the removals
  # below to a folder of this user.
  if [ ! -e "$place" ] && [ ! -L "$place" ]; then mkdir -m 700 "$place"; fi
  if [ -L "$place" ] || [ ! -d "$place" ] || [ ! -O "$place" ]; then
    echo "$place is a link or belongs to another user; every release is compiled there, one at a time" >&2
    exit 1
  fi
  exec 9>"$place/lock"
  flock --nonblock 9 || { echo "$place/lock: another release is being made" >&2; exit 1; }
  # The sources are a checkout of their own, so nothing that is committed or edited
  # meanwhile gets in.
  rm -rf "$place/source"
  git clone --quiet --no-checkout "$PWD" "$place/source"
  git -C "$place/source" checkout --quiet --detach "$(git rev-parse HEAD)"
  ln -s "$PWD/.deps" "$place/source/.deps"
  # Each flavour is compiled by itself, because the programs say which kernels they were
  # built with. The wheel contains the programs of cuda.
  compiled=("${flavours[@]}") wheel_package=$work/package-cuda
  if $wheel && [[ " ${flavours[*]} " != *" cuda "* ]]; then compiled+=(cuda); fi
  for flavour in "${compiled[@]}"; do
    cuda=OFF
    if [ "$flavour" = cuda ]; then cuda=ON; fi
    phase "compile $commit, $flavour" "$logs/compile-$flavour.log" compile "$cuda"
    phase "install the programs" "$logs/package-$flavour.log" pack "$flavour"
  done
  cd "$place/source"
else
  ln -s "$installed" "$work/package-$has"
  wheel_package=$work/package-$has
fi

# version_of PACKAGE prints what its programs say, and the first line of that. A release
# with a CUDA backend must have its kernels.
version_of() {
  said=$("$1/bin/dapd" --version)
  if [ -e "$1/lib/libdapd_cuda.so" ] && [[ $said == *"without nvcc"* ]]; then
    echo "libdapd_cuda.so contains no kernels; a release needs nvcc 13" >&2
    exit 1
  fi
  version=$(head -n 1 <<<"$said")
}
made=()

# --- The wheel ------------------------------------------------------------------
if $wheel; then
  version_of "$wheel_package"
  name=$("$python" deploy/release/wheel_name.py "$version")
  phase "make $name" "$logs/wheel.log" "$python" deploy/release/make_wheel.py \
    "$wheel_package" "$output/$name" --version "$version" \
    --time "$SOURCE_DATE_EPOCH" --lock "$lock"
  made+=("$name")
fi

# --- A tarball for each flavour -------------------------------------------------
# pack_tree NAME: the archive has no owners, only the commit's time, and is sorted by
# name.
pack_tree() {
  tar --create --directory "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" \
    --owner=0 --group=0 --numeric-owner --mode=u+rw,go=rX --format=gnu "$1" |
    gzip --no-name >"$output/$1.tar.gz.tmp" &&
    mv "$output/$1.tar.gz.tmp" "$output/$1.tar.gz"
}
for flavour in "${flavours[@]}"; do
  package=$work/package-$flavour
  version_of "$package"
  name=dapd-$version-linux-x86_64-$flavour
  phase "lay out $name" "$logs/lay_out.log" "$python" deploy/release/lay_out.py \
    "$package" "$work/$name" --flavour "$flavour" --version "$version" \
    --time "$SOURCE_DATE_EPOCH" --lock "$lock"
  phase "pack $name.tar.gz" "$logs/pack.log" pack_tree "$name"
  rm -rf "${work:?}/$name"
  made+=("$name.tar.gz")
done

# --- An image for each flavour --------------------------------------------------
# Images are named by their version, so the tags that this machine runs stay what they
# are.
image() {
  local tag=dapd:$version-$1
  local arguments=(--installed "$work/package-$1" --tag "$tag")
  if [ -n "$base" ]; then arguments+=(--base "$base"); fi
  DAPD_COMMIT=$(sed -n 's/^commit *//p' <<<"$said") \
    deploy/build_image.sh "${arguments[@]}" "$1" &&
    docker save "$tag" --output "$work/image.tar" &&
    "$python" deploy/release/normalize_image.py "$work/image.tar" \
      --time "$SOURCE_DATE_EPOCH" | gzip --no-name >"$output/$2.tmp" &&
    mv "$output/$2.tmp" "$output/$2"
}
if $images; then
  for flavour in "${flavours[@]}"; do
    name=dapd-$version-$flavour-image.tar.gz
    phase "image $name" "$logs/image.log" image "$flavour" "$name"
    made+=("$name")
  done
fi

cd "$output"
sha256sum "${made[@]}" >SHA256SUMS.tmp
mv SHA256SUMS.tmp SHA256SUMS
cat SHA256SUMS

# What programs of an image load from this machine, and whose it is. Sourced by the
# scripts that lay images out, in the root of one; not a program.
# shellcheck shell=bash

# libraries_of OWN PATH...: the paths of this machine's libraries, the loader among
# them, that the ELF files below the paths load; none below the folder OWN, and
# none of the NVIDIA driver's.
libraries_of() {
  local own=$1 libraries missing
  shift
  # Of a file that loads nothing ldd says so, and fails.
  libraries=$({ find "$@" -type f \( -perm /111 -o -name '*.so*' \) -exec ldd {} + 2>/dev/null || true; } |
    awk '$1 ~ /^libcuda\.so/ {next}
         $2 == "=>" {print $3 == "not" ? "missing:" $1 : $3}
         $1 ~ /^\/.*\/ld-linux/ {print $1}' |
    grep -v "^$own/" | sort -u)
  missing=$(sed -n 's/^missing://p' <<<"$libraries")
  if [ -n "$missing" ]; then
    echo "the programs load libraries that this machine lacks:" $missing >&2
    echo "install the Debian packages that they are in" >&2
    return 1
  fi
  echo "$libraries"
}

# packages_of FILE...: the Debian packages that they came with. dpkg knows a file by
# the path that it had before /lib became a link.
packages_of() {
  { realpath "$@"; printf '%s\n' "$@"; } | sort -u |
    xargs dpkg-query -S 2>/dev/null | sed 's/:.*//' | sort -u || true
}

# keep_package NAME: leaves its status and its licence, where scanners and people
# look for them.
keep_package() {
  mkdir -p var/lib/dpkg/status.d "usr/share/doc/$1"
  dpkg-query -s "$1" >"var/lib/dpkg/status.d/$1"
  cp -L "/usr/share/doc/$1/copyright" "usr/share/doc/$1/"
}

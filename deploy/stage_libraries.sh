# Finds the libraries that an image's programs load from this machine, and their
# packages. Scripts that lay images out source this file in the root of an image; it is
# not a program.
# shellcheck shell=bash

# libraries_of OWN PATH... prints the paths of this machine's libraries, with the
# loader, that the ELF files below the paths load. It leaves out libraries below the
# folder OWN and those of the NVIDIA driver.
libraries_of() {
  local own=$1 libraries missing
  shift
  # ldd fails for a file that loads nothing.
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

# packages_of FILE... prints the Debian packages of the files. dpkg knows a file by the
# path that it had before /lib became a link.
packages_of() {
  { realpath "$@"; printf '%s\n' "$@"; } | sort -u |
    xargs dpkg-query -S 2>/dev/null | sed 's/:.*//' | sort -u || true
}

# keep_package NAME keeps its status and its licence, where scanners and people look for
# them.
keep_package() {
  mkdir -p var/lib/dpkg/status.d "usr/share/doc/$1"
  dpkg-query -s "$1" >"var/lib/dpkg/status.d/$1"
  cp -L "/usr/share/doc/$1/copyright" "usr/share/doc/$1/"
}

#!/usr/bin/env bash
# Makes a private certificate authority, and with it a certificate for each role of a
# run.
#
#   deploy/make_certificates.sh FOLDER [--dns NAME]... [--days N] [ROLE]...
#
# FOLDER/ca/ holds the authority. Its ca.key signs everything: keep it where no service
# can read it. FOLDER/ROLE/ holds the files for a process of that role:
#
#   tls.crt, tls.key, ca.crt   security.certificate, .private_key and .ca
#   identity.pem               key and certificate in one file, which can take
#                              the place of both and be replaced in one step
#
# --dns adds names of this run's services, beside localhost. Peers compare roles and not
# names; other clients (curl, Prometheus) check the names. --days is the validity of the
# certificates, 30 by default; the authority is valid for ten years. Roles: rollout
# teacher trainer viewer admin (default: all); rollout+teacher+trainer makes one
# certificate for all three, for `dapd run`.
#
# Call it again for new certificates of the same authority: running services use them
# within seconds. An interrupted call leaves no file that a later call takes for
# complete.
set -euo pipefail
umask 077

usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
command -v openssl >/dev/null || { echo "openssl is missing: apt-get install openssl" >&2; exit 1; }

folder=""
names="DNS:localhost,IP:127.0.0.1,IP:::1"
days=30
roles=()
while [ $# -gt 0 ]; do
  case "$1" in
    --dns)
      [ $# -ge 2 ] || usage
      # A comma would begin a name of another kind, for example another role's.
      [[ "$2" =~ ^[A-Za-z0-9*][A-Za-z0-9.*_-]*$ ]] || { echo "--dns '$2' is not a host name" >&2; exit 2; }
      names+=",DNS:$2"
      shift
      ;;
    --days) [ $# -ge 2 ] || usage; days=$2; shift ;;
    -* | "") usage ;;  # empty: a variable that is not set
    *) if [ -z "$folder" ]; then folder=$1; else roles+=("$1"); fi ;;
  esac
  shift
done
[ -n "$folder" ] || usage
[[ "$days" =~ ^[1-9][0-9]{0,4}$ ]] || usage
[ ${#roles[@]} -gt 0 ] || roles=(rollout teacher trainer viewer admin)
role_name='(rollout|teacher|trainer|viewer|admin)'
for role in "${roles[@]}"; do
  [[ "$role" =~ ^$role_name(\+$role_name)*$ ]] || { echo "there is no role '$role'" >&2; exit 2; }
done

make_key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2>/dev/null; }

# A concurrent call would make another authority, or mix its files with these.
mkdir -p "$folder/ca"
exec 9>"$folder/ca/lock"
flock 9

new=
trap 'rm -rf "$new"' EXIT
# Both files are written aside, then renamed. A missing certificate is made again from
# the key, so everything that was signed with the key stays valid.
new=$(mktemp -d "$folder/ca/.new-XXXXXX")
if [ ! -s "$folder/ca/ca.key" ]; then
  make_key "$new/ca.key"
  sync "$new/ca.key"
  mv "$new/ca.key" "$folder/ca/"
fi
if [ ! -s "$folder/ca/ca.crt" ]; then
  openssl req -x509 -new -key "$folder/ca/ca.key" -sha256 -days 3650 \
    -subj "/CN=DAPD private authority" -out "$new/ca.crt" \
    -addext "basicConstraints=critical,CA:TRUE,pathlen:0" \
    -addext "keyUsage=critical,keyCertSign,cRLSign"
  sync "$new/ca.crt"
  mv "$new/ca.crt" "$folder/ca/"
fi
rmdir "$new"

for role in "${roles[@]}"; do
  san=$names
  usages=clientAuth  # a client that cannot act as a server
  for part in ${role//+/ }; do
    case "$part" in rollout | teacher | trainer) usages=serverAuth,clientAuth ;; esac
    san="URI:spiffe://dapd/$part,$san"
  done
  mkdir -p "$folder/$role"
  new=$(mktemp -d "$folder/$role/.new-XXXXXX")
  make_key "$new/tls.key"
  openssl req -new -key "$new/tls.key" -subj "/CN=dapd-${role//+/-}" -out "$new/request"
  # openssl writes to stderr also when all is well.
  said=$(openssl x509 -req -in "$new/request" -CA "$folder/ca/ca.crt" \
    -CAkey "$folder/ca/ca.key" -days "$days" -sha256 -out "$new/tls.crt" \
    -extfile <(printf '%s\n' "basicConstraints=critical,CA:FALSE" \
      "keyUsage=critical,digitalSignature" "extendedKeyUsage=$usages" \
      "subjectAltName=$san") 2>&1) || { echo "$folder/ca cannot sign for $role: $said" >&2; exit 1; }
  cat "$new/tls.key" "$new/tls.crt" >"$new/identity.pem"
  cp "$folder/ca/ca.crt" "$new/ca.crt"
  rm "$new/request"
  sync "$new"/*
  mv -f "$new"/* "$folder/$role/"
  rmdir "$new"
  echo "$folder/$role: ${san%%,DNS:*}, $days days" >&2
done

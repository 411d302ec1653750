#!/usr/bin/env bash
# Downloads a model, an adapter or a data set of the Hugging Face hub into the local
# cache, where `model.path`, --model, `lora.start_from` and `data.path` find it by the
# same id.
#
#   deploy/fetch.sh model ID[@REVISION]
#   deploy/fetch.sh data  ID[@REVISION][:GLOB]
#
# GLOB chooses files, as in data.path: 'org/name:main/train-*'. A second call fetches
# only the files that are missing. The variables of huggingface_hub apply: HF_HOME or
# HF_HUB_CACHE for the place, HF_TOKEN for repositories that are not public, HF_ENDPOINT
# for a mirror.
set -euo pipefail
unset CDPATH  # cd would search there first and print what it found
deploy=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$deploy/../.deps/venv/bin/python

# A release has no deploy/install.sh.
how_to_install() {
  if [ -e "$deploy/install.sh" ]; then
    echo deploy/install.sh
  else
    echo "python3 -m venv .deps/venv && .deps/venv/bin/python -m pip install" \
      "--no-deps -r deploy/requirements.txt in $(dirname "$deploy")"
  fi
}

if [ $# -ne 2 ] || { [ "$1" != model ] && [ "$1" != data ]; }; then
  echo "usage: deploy/fetch.sh model ID[@REVISION], or data ID[@REVISION][:GLOB]" >&2
  exit 2
fi
# Python must not start in the current folder, which it would search first.
if ! (cd / && "$python" -c 'import huggingface_hub' 2>/dev/null); then
  echo "huggingface_hub is missing; run $(how_to_install)" >&2
  exit 1
fi
exec "$python" "$deploy/fetch_from_hub.py" "$1" "$2"

#!/usr/bin/env bash
# From a bare clone to a trained adapter: installs, builds, fetches the demo
# model, generates problems, trains and evaluates. A second call skips what is
# there and trains again.
#
#   deploy/quickstart.sh [--tiny]
#
# --tiny trains a tiny random Qwen3 instead of SmolLM2-135M-Instruct, a few
# steps: it shows in seconds that everything works, and teaches nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source deploy/phase.sh

case "${1:-}" in
  --tiny) config=configs/tiny.yaml ;;
  "") config=configs/quickstart.yaml ;;
  *) echo "usage: deploy/quickstart.sh [--tiny]" >&2; exit 2 ;;
esac

# The held-out problems share no numbers with the training problems.
make_problems() {  # SPLIT COUNT
  local file=.deps/data/unit_conversion/$1-$2.jsonl
  if [ ! -e "$file" ]; then
    mkdir -p "$(dirname "$file")" &&
      build/bin/dapd problems --task unit_conversion --split "$1" \
        --count "$2" --seed 1 --output "$file"
  fi
}

make_data() { make_problems train 1000 && make_problems held_out 100; }

deploy/install.sh
deploy/build.sh
if [ "$config" = configs/tiny.yaml ]; then
  phase "make the tiny model" .deps/logs/model.log \
    .deps/venv/bin/python deploy/make_tiny_model.py
else
  phase "fetch SmolLM2-135M-Instruct" .deps/logs/model.log \
    .deps/venv/bin/python deploy/fetch_demo_model.py
fi
phase "generate problems" .deps/logs/data.log make_data

# Every call is a run of its own.
name=$(basename "$config" .yaml)-$(date +%Y%m%d-%H%M%S)
start=$SECONDS
build/bin/dapd run "$config" --set "run.name=$name"
printf '%-44s %4d s\n' "train and evaluate" $((SECONDS - start))

run_folder=runs/$name
echo
build/bin/dapd answers "$run_folder" --count 3
echo
echo "summary: $run_folder/summary.json"
echo "adapter: $run_folder/adapter/ (a PEFT folder)"
echo "metrics: $run_folder/metrics.jsonl"
echo "answers: $run_folder/answers.jsonl"

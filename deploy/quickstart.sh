#!/usr/bin/env bash
# Leads from a bare clone to a trained adapter: installs, builds, generates problems,
# trains, and measures before and after on problems that training never sees. A second
# call skips what exists and trains again.
#
#   deploy/quickstart.sh [--smollm2|--illusion|--tiny]
#
# Without a flag it trains the laboratory model, which is part of the repository.
# --illusion trains the model of docs/illusion.md twice, with OPSD and with DAPD, and
# compares how often the two claim to recall a result and how often they are right.
# --smollm2 trains SmolLM2-135M-Instruct, a pretrained model from a PyPI package. --tiny
# trains a tiny random Qwen3 for a few steps: it shows in seconds that everything works,
# and teaches nothing.
set -euo pipefail
unset CDPATH  # cd would search there first and print what it found
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source deploy/phase.sh

usage() {
  echo "usage: deploy/quickstart.sh [--smollm2|--illusion|--tiny]" >&2
  exit 2
}

[ $# -le 1 ] || usage
task=unit_conversion num_train=1000 num_held_out=100
figures=accuracy,format_rate
objectives=("")  # "": the objective of the configuration
case "${1:-}" in
  "")
    config=configs/laboratory.yaml
    task=stepwise_sum num_train=10000 num_held_out=200
    figures=accuracy,marker_rate
    ;;
  --smollm2) config=configs/quickstart.yaml ;;
  --illusion)
    config=configs/laboratory-illusion.yaml
    task=stepwise_sum num_train=10000 num_held_out=200
    figures=accuracy,marker_rate
    objectives=(opsd dapd)
    ;;
  --tiny) config=configs/tiny.yaml ;;
  *) usage ;;
esac

# The held-out problems have none in common with the training problems.
make_problems() {  # SPLIT COUNT
  local file=.deps/data/$task/$1-$2.jsonl
  if [ ! -e "$file" ]; then
    mkdir -p "$(dirname "$file")" &&
      build/bin/dapd problems --task "$task" --split "$1" --count "$2" \
        --seed 1 --output "$file"
  fi
}

make_data() {
  make_problems train "$num_train" && make_problems held_out "$num_held_out"
}

deploy/install.sh
deploy/build.sh
case "$config" in
  configs/quickstart.yaml)
    phase "fetch SmolLM2-135M-Instruct" .deps/logs/model.log \
      .deps/venv/bin/python deploy/fetch_demo_model.py
    ;;
  configs/tiny.yaml)
    phase "make the tiny model" .deps/logs/model.log \
      .deps/venv/bin/python deploy/make_tiny_model.py
    ;;
esac
phase "generate problems" .deps/logs/data.log make_data

# Every call makes new runs.
base=$(basename "$config" .yaml)-$(date +%Y%m%d-%H%M%S)
run_folders=()
for objective in "${objectives[@]}"; do
  name=$base${objective:+-$objective}
  start=$SECONDS
  build/bin/dapd run "$config" --set "run.name=$name" \
    ${objective:+--set "objective.preset=$objective"}
  printf '%-44s %4d s\n' "train and evaluate${objective:+ ($objective)}" $((SECONDS - start))
  run_folders+=("runs/$name")
done

echo
build/bin/dapd compare "${run_folders[@]}" --figures "$figures"
for run_folder in "${run_folders[@]}"; do
  echo
  build/bin/dapd answers "$run_folder" --count 3
  echo
  echo "summary: $run_folder/summary.json"
  echo "adapter: $run_folder/adapter/ (a PEFT folder)"
  echo "metrics: $run_folder/metrics.jsonl"
  echo "answers: $run_folder/answers.jsonl"
done

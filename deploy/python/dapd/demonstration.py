"""The laboratory: a model of 1.3 million parameters that learns to err less when it adds numbers, on two cores and in minutes."""

from __future__ import annotations

import os
import pathlib

from dapd.command import value_text
from dapd.installation import ROOT, config_path
from dapd.model_commands import problems

MODEL = ROOT / "demo/laboratory"
TINY_MODEL = ROOT / "demo/tiny-qwen3"


def make_demonstration(folder: str | os.PathLike[str] = "demonstration") -> pathlib.Path:
    """Makes `folder` with the problems and a configuration that extends `laboratory`. Returns the configuration file,
    for dapd.run() and `dapd run`. Existing problems stay; the configuration is written anew, because it names files
    of this installation."""
    place = pathlib.Path(folder).absolute()
    place.mkdir(parents=True, exist_ok=True)
    files = {}
    for split, count in (("train", 10_000), ("held_out", 200)):
        files[split] = place / f"{split}-{count}.jsonl"
        if not files[split].exists():
            problems("stepwise_sum", files[split], split=split, count=count)
    config = place / "laboratory.yaml"
    aside = config.with_suffix(".yaml.tmp")
    aside.write_text(f"""\
# The laboratory with the problems of this folder; docs/python.md says more.
extends: {value_text(config_path("laboratory"))}
run:
  output_dir: {value_text(place / "runs")}
model:
  path: {value_text(MODEL)}
data:
  path: {value_text(files["train"])}
evaluation:
  path: {value_text(files["held_out"])}
""", encoding="utf-8")
    aside.rename(config)
    return config

"""Writes results.json and results.txt: the machine, and for each stage its state, time and lines.

A stage is {"stage", "state": passed | failed | not run | running, "reason", "seconds", "lines"}. Its lines are those
of Row (duel.py), in which an error that is not a number is a text. If the results are final, a stage that is still
running in them was ended together with the call.
"""

import itertools
import json
import os
import pathlib


class Results:
    """The results in a folder. Stages of earlier calls stay, unless they run again on the same machine with the same
    pack. Results of another machine or pack, or of a rehearsal, are renamed to results-before*.json."""

    def __init__(self, folder, pack, machine, order, rehearsal):
        self.folder, self.order = pathlib.Path(folder), order
        self.content = {"pack": pack, "machine": machine, "rehearsal": rehearsal, "stages": []}
        try:
            before = json.loads((self.folder / "results.json").read_text())
        except (OSError, ValueError):
            return
        same = all(before.get(key) == self.content[key] for key in ("pack", "rehearsal")) and before["machine"].get("gpu") == machine.get("gpu")
        if same:
            self.content["stages"] = before["stages"]
        else:
            # Earlier renamed results stay too, because a GPU may not be available to measure them again.
            names = (f"results-before{f'-{number}' if number else ''}.json" for number in itertools.count())
            (self.folder / "results.json").rename(next(path for path in map(self.folder.joinpath, names) if not path.exists()))

    def of(self, stage):
        """Returns the stage from an earlier run, or None."""
        return next((each for each in self.content["stages"] if each["stage"] == stage and each["state"] != "not run"), None)

    def put(self, stage, state, reason=None, seconds=0.0, lines=()):
        """Replaces the stage's entry. Both files are complete at any time."""
        others = [other for other in self.content["stages"] if other["stage"] != stage]
        entry = {"stage": stage, "state": state, "reason": reason, "seconds": round(seconds, 1), "lines": list(lines)}
        self.content["stages"] = sorted([*others, entry], key=lambda each: self.order.index(each["stage"]))
        self._write("results.json", json.dumps(self.content, indent=1) + "\n")
        self._write("results.txt", self.text())
        return entry

    def _write(self, name, text):
        aside = self.folder / f"{name}.tmp"
        aside.write_text(text)
        os.replace(aside, self.folder / name)

    def text(self):
        machine, pack = self.content["machine"], self.content["pack"]
        lines = []
        if self.content["rehearsal"]:
            lines.append("REHEARSAL: the CPU stands in for the GPU, at small sizes; nothing here was measured or proved on a GPU.")
        lines.append(f"pack: {machine.get('programs') or pack['commit']}, torch {pack['torch']}")
        for key in ("gpu", "driver", "torch", "python", "glibc", "machine", "cpus", "memory_gib", "disk_free_gib", "c_compiler", "no_gpu"):
            if key in machine:
                lines.append(f"{key}: {describe(machine[key])}")
        for what, why in [*machine.get("peers", {}).items()]:
            lines.append(f"peer {what}: {why}")
        for what, why in [*machine.get("peers_left_out", {}).items(), *((each["what"], each["why"]) for each in pack["left_out"])]:
            lines.append(f"left out: {what}: {why}")
        for stage in self.content["stages"]:
            lines += ["", *stage_text(stage)]
        return "\n".join(lines) + "\n"


def describe(value):
    if isinstance(value, dict):
        return ", ".join(f"{key} {describe(part)}" for key, part in value.items())
    return ".".join(map(str, value)) if isinstance(value, list) else "none" if value is None else str(value)


def stage_text(stage):
    """Returns headline and lines of a stage."""
    reason = f": {stage['reason']}" if stage["reason"] else ""
    lines = [f"== {stage['stage']}  {stage['state']}{reason}  ({stage['seconds']:.0f} s)"]
    for line in stage["lines"]:
        if "title" in line:
            lines.append(f"{line['row']}  {line['title']}")
        elif "check" in line:
            lines.append(f"    check: {line['check']}: {float(line['error']):.3g} (limit {float(line['limit']):g}) {'ok' if line['ok'] else 'FAILED'}")
        else:
            target = "" if line["target"] is None else f"   [target {line['target']}: {'met' if line['met'] else 'MISSED'}]"
            lines.append(f"    {line['figure']}: {line['value']}{target}")
    return lines

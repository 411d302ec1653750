"""tests/gpu/machine.py: what is looked at again, and what is not, in a second call on the same machine."""

import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))

import machine  # noqa: E402


def test_packages_are_looked_for_once_for_a_python_and_its_torch(monkeypatch, tmp_path):
    looked = []
    probe = {"version": "2.11.0", "folder": "/torch", "libstdc++": None, "no_gpu": "none here"}
    monkeypatch.setattr(machine, "check_torch", lambda _: dict(probe))
    monkeypatch.setattr(machine, "check_loader", lambda _: "2.36")
    monkeypatch.setattr(machine, "ask", lambda command, env=None: subprocess.CompletedProcess(command, 0, "a pack", ""))
    monkeypatch.setattr(machine, "find_packages", lambda *_: looked.append(1) or {"python_path": ["/peers"], "peers": {"peft": str(len(looked))},
                                                                                  "peers_left_out": {}})
    first, second = (machine.examine(tmp_path, tmp_path, {}) for _ in range(2))
    assert len(looked) == 1 and first == second and first["peers"] == {"peft": "1"} and first["programs"] == "a pack"
    probe["version"] = "2.11.1"
    assert machine.examine(tmp_path, tmp_path, {})["peers"] == {"peft": "2"}
    (tmp_path / "packages.json").write_text("{")
    assert machine.examine(tmp_path, tmp_path, {})["peers"] == {"peft": "3"}


def test_what_cannot_run_here_is_not_remembered(monkeypatch, tmp_path):
    def fails(*_):
        raise machine.Unusable("a symbol is missing")

    monkeypatch.setattr(machine, "check_torch", lambda _: {"version": "2.11.0", "folder": "/torch", "libstdc++": None})
    monkeypatch.setattr(machine, "check_loader", lambda _: "2.36")
    monkeypatch.setattr(machine, "find_packages", fails)
    for _ in range(2):
        with pytest.raises(machine.Unusable, match="a symbol is missing"):
            machine.examine(tmp_path, tmp_path, {})
    assert not (tmp_path / "packages.json").exists()

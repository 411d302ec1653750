"""Tests what tests/gpu/machine.py checks again in a second call on the same machine, and what it skips."""

import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))

import machine  # noqa: E402


@pytest.fixture
def tree(monkeypatch, tmp_path):
    """Makes an unpacked pack with a library, on a machine with torch."""
    for folder in "programs/bin", "programs/lib", "libraries":
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "libraries/libone.so").write_text("one")
    monkeypatch.setattr(machine, "check_torch", lambda _: {"version": "2.11.0"})
    monkeypatch.setattr(machine, "check_loader", lambda _: "2.36")
    monkeypatch.setattr(machine, "library_path", lambda *_: [tmp_path / "libraries"])
    monkeypatch.setattr(machine, "ask", lambda command, env=None: subprocess.CompletedProcess(command, 0, "a pack", ""))
    monkeypatch.setattr(machine, "why_no_gpu", lambda *_: None)
    return tmp_path


def test_packages_are_looked_for_once_while_nothing_changes(tree, monkeypatch):
    looked = []
    monkeypatch.setattr(machine, "find_packages", lambda _: looked.append(1) or {"peers": len(looked)})

    def peers():
        return machine.examine(tree, tree, {})["peers"]

    assert peers() == 1 and peers() == 1 and (tree / "library_path").read_text() == str(tree / "libraries")
    (tree / "libraries/libone.so").unlink()
    assert peers() == 2 and peers() == 2
    monkeypatch.setattr(machine, "check_torch", lambda _: {"version": "2.11.1"})
    assert peers() == 3
    (tree / "packages.json").write_text("{")
    assert peers() == 4 and peers() == 4


def test_what_cannot_run_here_is_not_remembered(tree, monkeypatch):
    def fails(_):
        raise machine.Unusable("a symbol is missing")

    monkeypatch.setattr(machine, "find_packages", fails)
    for _ in range(2):
        with pytest.raises(machine.Unusable, match="a symbol is missing"):
            machine.examine(tree, tree, {})
    assert not (tree / "packages.json").exists()

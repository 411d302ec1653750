"""Checks that clang-format would change nothing in the sources."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Other versions break some lines elsewhere.
VERSION = "14"


def test_every_source_is_formatted():
    said = subprocess.run(["clang-format", "--version"], capture_output=True, text=True, check=True).stdout
    if f"version {VERSION}." not in said:
        pytest.skip(f"the sources have the format of clang-format {VERSION}; this is {said.strip()}")
    sources = subprocess.run(["git", "ls-files", "*.cc", "*.h", "*.cu", "*.cuh"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert len(sources) > 100
    result = subprocess.run(["clang-format", "--dry-run", "-Werror", *sources], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr

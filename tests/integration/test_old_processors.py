"""The programs on emulated processors that lack what this machine has: with AVX2 and without AVX-512, and without AVX.

QEMU ends a program at an instruction that the emulated processor lacks (SIGILL), as that processor does.
tests/deploy/test_cpu_levels.py checks the same rule in the objects. If this machine, set to the same level, gives
the same numbers, DAPD_CPU_LEVEL selects the same code.
"""

import json
import os
import pathlib
import re
import shutil
import stat
import subprocess

import numpy as np
import pytest
import safetensors.numpy

from conftest import BIN, set_flags

# By level of common/kernels/cpu_features.h. QEMU 7.2 does not emulate transactions and a few features for operating
# systems, and would warn each time.
PROCESSORS = {"avx2": "Haswell-noTSX,-pcid,-x2apic,-tsc-deadline,-invpcid", "baseline": "Nehalem"}
PROGRAMS = ("dapd", "dapd-rollout", "dapd-teacher", "dapd-trainer")
SECONDS = 300


class Emulated:
    """The programs, which also start each other under the emulator."""

    def __init__(self, folder, level):
        self.level = level
        self.emulator = ["qemu-x86_64", "-cpu", PROCESSORS[level]]
        self.folder = folder
        # A program searches its own folder for the others, and finds scripts there.
        for name in PROGRAMS[1:]:
            script = folder / name
            script.write_text(f"#!/bin/sh\nexec {' '.join(self.emulator)} {BIN / name} \"$@\"\n")
            script.chmod(script.stat().st_mode | stat.S_IXUSR)
        shutil.copy2(BIN / "dapd", folder / "dapd")

    def run(self, program, *arguments):
        # A service without OMP_WAIT_POLICY executes itself again, and the emulator would run that on this machine's
        # processor.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        return subprocess.run([*self.emulator, str(program), *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS, env=environment)

    def dapd(self, *arguments):
        result = self.run(self.folder / "dapd", *arguments)
        assert result.returncode == 0, f"{arguments}: code {result.returncode}\n{result.stderr}"
        return result


@pytest.fixture(scope="module", params=PROCESSORS)
def emulated(request, tmp_path_factory):
    return Emulated(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture
def lowered(emulated, monkeypatch):
    """Returns an environment in which this machine's processor uses the emulated one's level."""
    monkeypatch.setenv("DAPD_CPU_LEVEL", emulated.level)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def relative_error(found, expected):
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def test_the_emulated_processor_is_of_its_level(emulated):
    assert f"CPU: {emulated.level}\n" in emulated.dapd("--version").stdout


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_answers_are_those_of_the_level(precision, emulated, lowered, workspace, tmp_path):
    (tmp_path / "prompts").write_text("".join(json.dumps({"id": f"{i}", "input_ids": [72 + i, 101, 108, 108, 111]}) + "\n" for i in range(3)))
    command = ["generate", "--model", workspace.model, "--input", tmp_path / "prompts", "--max-new-tokens", 6, "--temperature", 0, "--precision", precision]
    emulated.dapd(*command, "--output", tmp_path / "emulated")
    workspace.dapd(*command, "--output", tmp_path / "lowered")
    found, expected = ([json.loads(line) for line in (tmp_path / name).read_text().splitlines()] for name in ("emulated", "lowered"))
    assert [row["ids"] for row in found] == [row["ids"] for row in expected]
    error = max(relative_error(np.array(a["logprobs"]), np.array(b["logprobs"])) for a, b in zip(found, expected, strict=True))
    print(f"{emulated.level}, {precision}: log-probabilities differ by {error:.1e}")
    # In float32 only LibTorch's sums may have another order. In bfloat16 such a sum may be rounded to its neighbour,
    # 2^-8 away.
    assert error < (1e-5 if precision == "float32" else 2**-8)


def test_scores_and_gradients_are_those_of_the_level(emulated, lowered, workspace, tmp_path):
    (tmp_path / "texts").write_text(json.dumps({"id": "a", "input_ids": list(range(65, 85))}) + "\n")
    score = ["score", "--model", workspace.model, "--input", tmp_path / "texts", "--precision", "float32", "--logits"]
    problem = json.loads((workspace.folder / "train.jsonl").read_text().splitlines()[0])
    sample = {"id": "a", "problem": problem["problem"], "reference": problem["solution"], "rollout_ids": list(range(65, 75))}
    (tmp_path / "batch").write_text(json.dumps(sample) + "\n")
    replay = ["replay", "--config", workspace.config, "--batch", tmp_path / "batch"]
    emulated.dapd(*score, "--output", tmp_path / "emulated.safetensors")
    workspace.dapd(*score, "--output", tmp_path / "lowered.safetensors")
    emulated.dapd(*replay, "--output", tmp_path / "emulated")
    workspace.dapd(*replay, "--output", tmp_path / "lowered")
    errors = {}
    for name in ("{}.safetensors", "{}/gradients.safetensors"):
        found, expected = (safetensors.numpy.load_file(tmp_path / name.format(side)) for side in ("emulated", "lowered"))
        assert set(found) == set(expected)
        scale = max(np.abs(tensor).max() for tensor in expected.values())
        errors[name] = max(float(np.abs(found[key] - expected[key]).max() / scale) for key in found)
    loss, expected_loss = (json.loads((tmp_path / side / "objective.json").read_text())["loss"] for side in ("emulated", "lowered"))
    errors["loss"] = abs(loss - expected_loss) / expected_loss
    print(emulated.level, {name: f"{error:.1e}" for name, error in errors.items()})
    assert expected_loss > 0 and max(errors.values()) < 1e-4


def test_a_run_and_its_evaluation_end(emulated, lowered, workspace, tmp_path):
    settings = {"run.name": "run", "run.output_dir": tmp_path, "trainer.steps": 2, "trainer.batch_size": 2, "rollout.max_new_tokens": 6,
                "objective.max_reference_tokens": 16, "teacher.snapshot_interval": 1}
    emulated.dapd("run", workspace.config, *set_flags(settings))
    workspace.dapd("run", workspace.config, *set_flags({**settings, "run.name": "lowered"}))
    found, expected = ([json.loads(line)["loss"] for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()] for name in ("run", "lowered"))
    print(f"{emulated.level}: losses {found} and {expected}")
    assert found == pytest.approx(expected, rel=1e-4) and len(found) == 2
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_text("".join((workspace.folder / "held_out.jsonl").open().readlines()[:2]))
    result = emulated.dapd("eval", "--model", workspace.model, "--adapter", tmp_path / "run/adapter", "--data", held_out, "--samples", 1, "--max-new-tokens", 4)
    assert "accuracy" in result.stdout + result.stderr


def test_kernels_pass_their_own_tests(emulated):
    """The tests ask the processor for its levels and run at each. Three tests are left out: they repeat others'
    products at sizes that take minutes here."""
    long_ones = "PackedGemmTest.NeitherThreadsNorOtherRowsChangeABit:PackedGemmTest.AgreesWithTheDefinition*:CausalAttentionTest.LongSequencesAgree"
    result = emulated.run(BIN / "dapd_kernels_test", "--gtest_brief=1", f"--gtest_filter=-{long_ones}")
    print(result.stdout[-200:])
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-2000:]
    passed = re.search(r"PASSED  \] (\d+) tests", result.stdout)
    assert int(passed[1]) > 50


def test_an_instruction_that_the_processor_lacks_does_end_a_program(emulated):
    """Without this the tests above could not fail."""
    source = pathlib.Path(emulated.folder / "beyond.c")
    source.write_text('int main(void) { __asm__ volatile("vpxorq %zmm0, %zmm0, %zmm0"); return 0; }\n')
    subprocess.run(["cc", "-o", source.with_suffix(""), source], check=True)
    assert emulated.run(source.with_suffix("")).returncode == -4


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_processor_that_is_too_old_for_libtorch_is_told_so_at_once(program):
    """The message comes before the initializers of libraries, which would end the program without one."""
    result = subprocess.run(["qemu-x86_64", "-cpu", "core2duo", BIN / program, "--version"], capture_output=True, text=True, timeout=SECONDS)
    assert result.returncode == 3 and result.stdout == ""
    words = [line for line in result.stderr.splitlines() if not line.startswith("qemu-x86_64: warning")]
    assert len(words) == 1 and "lacks SSE4.2 or POPCNT" in words[0]

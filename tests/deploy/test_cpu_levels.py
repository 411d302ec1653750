"""Checks in the object files that code compiled for a newer processor is reached only on such a processor.

A machine that runs the tests may have a new processor, where a wrong call of a newer level's code has no visible effect. The object files
show it on every machine. tests/integration/test_old_processors.py runs the programs on emulated older processors.
"""

import functools
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
KERNELS = BUILD / "common/kernels/CMakeFiles"

# Maps each CpuLevel (common/kernels/cpu_features.h) to the assembler's names of its instructions beyond x86-64.
FEATURES = {
    "baseline": (),
    "avx2": ("avx", "avx2", "fma"),
    "avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl"),
    "avx512_bf16": ("avx512_bf16",),
    "amx": ("amx_tile", "amx_bf16"),
}
LEVELS = list(FEATURES)
# These sources choose a level with CpuLevelTables.
DISPATCH = {"divergence_kernel.cc.o", "packed_gemm.cc.o", "training_rows.cc.o", "decode_kernels.cc.o"}


@functools.cache
def built():
    """Returns the objects of this build, without objects that other sources or options have left behind."""
    return {BUILD / name for name in re.findall(r"^build (\S+\.o):", (BUILD / "build.ninja").read_text(), re.MULTILINE)}


def level_objects(level):
    objects = sorted(path for path in built() if path.is_relative_to(KERNELS / f"dapd_kernels_{level}.dir"))
    assert objects, f"no object was built for {level}"
    return objects


def other_objects():
    """Returns all objects of the programs except the levels' objects."""
    levels = {path for level in LEVELS for path in level_objects(level)}
    folders = [BUILD / "common", BUILD / "services", BUILD / "CMakeFiles"]
    objects = [path for path in built() - levels if any(path.is_relative_to(folder) for folder in folders)]
    # Kernels for GPUs contain no CPU code of a level, and tests are no part of a program.
    return sorted(path for path in objects if path.exists() and ".cu.o" not in path.name and "_test.dir" not in str(path) and "simulated" not in str(path))


def tool(*command):
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout


def vector_instructions(objects):
    """Returns [(function, instruction)] of all instructions with a VEX (C4, C5) or EVEX (62) prefix; in 64-bit mode only AVX, AVX-512 and
    AMX have such a prefix."""
    found = []
    function = None
    for line in tool("objdump", "--disassemble", "--demangle", "--insn-width=15", *objects).splitlines():
        if line.endswith(">:"):
            function = line.split(" ", 1)[1][1:-2]
        elif match := re.match(r" *[0-9a-f]+:\t(?:64 |65 |67 )*(?:62|c4|c5) [0-9a-f ]*\t(.*)", line):
            found.append((function, match[1].split("#")[0].split("<")[0].strip()))
    return found


def refused(instructions, level):
    """Returns the instructions that the assembler refuses if it may use `level` and the levels below."""
    features = [feature for each in LEVELS[: LEVELS.index(level) + 1] for feature in FEATURES[each]]
    lines = sorted(set(instructions))
    result = subprocess.run(["as", f"-march={'+'.join(['generic64', *features])}", "-o", "/dev/null", "-"], input="\n".join(lines) + "\n",
                            capture_output=True, text=True)
    return [lines[int(number) - 1] for number in re.findall(r"\{standard input\}:(\d+): Error", result.stderr)]


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_has_no_instruction_beyond_it(level):
    found = vector_instructions(level_objects(level))
    print(f"{level}: {len(found)} vector instructions, {len({text for _, text in found})} different ones")
    assert (level == "baseline") == (not found)
    assert not refused([text for _, text in found], level)
    # With only the levels below, the assembler refuses nearly all instructions of a level.
    if level != "baseline":
        assert refused([text for _, text in found], LEVELS[LEVELS.index(level) - 1])
    strangers = {function for function, _ in found if f"dapd::{level}::" not in function}
    assert not strangers


def test_nothing_outside_the_levels_has_vector_instructions():
    objects = other_objects()
    assert len(objects) > 60
    found = vector_instructions(objects)
    assert not found, f"{len(found)}, the first in {found[0][0]}: {found[0][1]}"


@pytest.mark.parametrize("level", LEVELS)
def test_no_function_of_a_level_can_stand_in_for_another(level):
    """If several weak functions have the same name, the linker keeps the first of them."""
    shared = []
    for line in tool("nm", "--demangle", "--defined-only", "--extern-only", *level_objects(level)).splitlines():
        match = re.match(r"[0-9a-f]+ ([A-Z]) (.*)", line, re.IGNORECASE)
        # The pointer to C++'s exception handler is data and equal in all objects.
        if match and f"dapd::{level}::" not in match[2] and match[2] != "DW.ref.__gxx_personality_v0":
            shared.append(line)
    assert not shared


def asked_for(objects):
    """Returns {(object, level)} of every function of a level that an object takes from another object."""
    lines = tool("nm", "--print-file-name", "--demangle", "--undefined-only", *objects).splitlines()
    found = [re.match(rf"(.*?): +U dapd::({'|'.join(LEVELS)})::", line) for line in lines]
    return {(pathlib.Path(match[1]), match[2]) for match in found if match}


def test_only_the_dispatch_tables_ask_for_a_level():
    assert {path.name for path, _ in asked_for(other_objects())} == DISPATCH
    # A level contains the levels below it and may call their code.
    for level in LEVELS:
        above = LEVELS[LEVELS.index(level) + 1 :]
        assert not [pair for pair in asked_for(level_objects(level)) if pair[1] in above], level


def test_a_dispatch_table_makes_no_call_of_a_level_but_by_its_pointer():
    """A dispatch table holds the addresses of the functions that make a level's table; CpuLevelTables::Of calls them for the level in use.
    A table with parts of two levels is made by a separate function, held in the same way."""
    for name in sorted(DISPATCH):
        (path,) = [path for path in other_objects() if path.name == name]
        calls = {}
        function = None
        for line in tool("objdump", "--disassemble", "--demangle", "--reloc", path).splitlines():
            if line.endswith(">:"):
                function = line.split(" ", 1)[1][1:-2]
            elif match := re.search(rf"R_X86_64_(?:PLT32|PC32)\t(dapd::(?:{'|'.join(LEVELS)})::\w+)", line):
                if "PLT32" in line:
                    calls.setdefault(function, []).append(match[1])
        print(name, calls)
        assert set(calls) <= {"dapd::(anonymous namespace)::MakeAmxKernels()"}, calls


@pytest.mark.parametrize("name", ["dapd", "dapd-rollout", "dapd-teacher", "dapd-trainer"])
def test_in_a_program_only_functions_of_a_level_have_vector_instructions(name):
    """Checks the code that the linker took, including libraries in the program."""
    found = vector_instructions([BUILD / "bin" / name])
    strangers = {function for function, _ in found if not re.search(rf"dapd::(?:{'|'.join(LEVELS)})::", function)}
    print(f"{name}: {len(found)} vector instructions")
    assert found and not strangers

"""Checks which of the compiler's defences are in the programs, and that forbidden functions are not."""

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("DAPD_BIN", ROOT / "build" / "bin"))
PROGRAMS = ["dapd", "dapd-rollout", "dapd-teacher", "dapd-trainer"]

# These loaders run code from a file (pickle) or lead to such a loader.
LOADERS = ["torch::load", "torch::pickle_load", "torch::jit::load", "torch::jit::pickle_load", "torch::jit::import_ir_module",
           "torch::jit::unpickle", "torch::jit::_load_for_mobile", "torch::serialize::InputArchive"]
LOADER_IN_SOURCE = re.compile(r"\b(torch|jit|serialize)::(load|pickle_load|jit::load|unpickle|InputArchive|import_ir_module)\b|\bUnpickler\b")
PICKLE_IN_PYTHON = re.compile(
    r"\bimport (pickle|dill|cloudpickle|marshal|shelve)\b|\bpickle\.loads?\b|\btorch\.load\b|allow_pickle\s*=\s*True|trust_remote_code\s*=\s*True")


def read(tool, *arguments):
    return subprocess.run([tool, *arguments], capture_output=True, text=True, check=True).stdout


@pytest.fixture(params=PROGRAMS)
def program(request):
    path = BIN / request.param
    assert path.exists(), f"{path} is not built"
    return path


def undefined_symbols(program):
    return read("nm", "--dynamic", "--demangle", "--undefined-only", program)


def test_the_address_of_a_program_is_not_fixed(program):
    assert re.search(r"Type:\s+DYN \(Position-Independent Executable file\)", read("readelf", "--file-header", program))


def test_no_table_of_a_program_can_be_overwritten_once_it_runs(program):
    headers = read("readelf", "--wide", "--program-headers", program)
    assert "GNU_RELRO" in headers
    (stack,) = re.findall(r"GNU_STACK.*", headers)
    assert "RWE" not in stack, stack
    dynamic = read("readelf", "--dynamic", program)
    assert re.search(r"FLAGS\).*BIND_NOW", dynamic) and re.search(r"FLAGS_1\).*NOW", dynamic), dynamic
    assert "TEXTREL" not in dynamic


def test_buffers_and_containers_are_checked_as_a_program_runs(program):
    symbols = undefined_symbols(program)
    assert "__stack_chk_fail" in symbols, "-fstack-protector-strong"
    assert re.search(r"\b__\w+_chk\b", symbols), "-D_FORTIFY_SOURCE"
    assert "std::__glibcxx_assert_fail" in symbols, "-D_GLIBCXX_ASSERTIONS"


def test_no_program_links_a_loader_that_runs_what_a_file_says(program):
    found = [line for line in undefined_symbols(program).splitlines() if any(loader in line for loader in LOADERS)]
    assert not found
    assert "at::" in undefined_symbols(program), "LibTorch's symbols are looked at"


def sources(*suffixes):
    names = read("git", "-C", ROOT, "ls-files", "common", "services", "deploy").splitlines()
    found = [ROOT / name for name in names if name.endswith(suffixes)]
    assert len(found) >= 3
    return found


def test_no_source_names_a_loader_that_runs_what_a_file_says():
    for suffixes, pattern in (((".cc", ".h", ".cu"), LOADER_IN_SOURCE), ((".py",), PICKLE_IN_PYTHON)):
        for path in sources(*suffixes):
            match = pattern.search(path.read_text())
            assert match is None, f"{path}: {match.group()}"


@pytest.mark.parametrize("text", ["torch::load(x, p)", "torch::jit::load(p)", "torch::pickle_load(v)", "torch::serialize::InputArchive a;"])
def test_the_search_of_the_sources_finds_loaders(text):
    assert LOADER_IN_SOURCE.search(text)


@pytest.mark.parametrize("text", ["import pickle", "torch.load(p)", "np.load(p, allow_pickle=True)"])
def test_the_search_of_the_scripts_finds_loaders(text):
    assert PICKLE_IN_PYTHON.search(text)

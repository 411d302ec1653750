"""Starts the programs of the CUDA image without an engine, a driver or a GPU: they answer and say what is missing."""

import os
import re
import shlex
import shutil
import subprocess

import pytest

from image_root import ANY_PORTS, DOCKERFILE, ROOT, inside, instructions, start

PROGRAMS = ("dapd", "dapd-rollout", "dapd-teacher", "dapd-trainer")
CONFIG = "/etc/dapd/container.yaml"
ON_CUDA = ("--set", "model.device=cuda", *ANY_PORTS)
FAKE = ROOT / "build/fakes/nvidia"


def stage(package, root, *options):
    return subprocess.run([ROOT / "deploy/stage_image.sh", *options, package, root], capture_output=True, text=True)


@pytest.mark.parametrize("content, reason", [(None, "has no CUDA backend"), (b"\x7fELF without kernels", "was built without nvcc")])
def test_the_image_fails_without_cuda_and_kernels(content, reason, tmp_path):
    (tmp_path / "package/lib").mkdir(parents=True)
    if content is not None:
        (tmp_path / "package/lib/libdapd_cuda.so").write_bytes(content)
    result = stage(tmp_path / "package", tmp_path / "root", "--cuda")
    assert result.returncode == 1 and reason in result.stderr
    assert not (tmp_path / "root").exists()


def cuda_target():
    """Returns the last instruction of each name."""
    return {name: rest for name, rest in instructions(DOCKERFILE.read_text().split("FROM cpu AS cuda")[1])}


def test_the_cuda_target_says_what_it_needs():
    text = cuda_target()
    assert 'NVIDIA_REQUIRE_CUDA="cuda>=13.0"' in text["ENV"] and "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in text["ENV"]
    assert 'dapd.nvidia-driver=">=580"' in text["LABEL"] and 'dapd.compute-capability=">=8.0"' in text["LABEL"]
    # Only the image's own base may contain a compiler.
    assert "nvidia/cuda" not in DOCKERFILE.read_text()
    assert any(name == "RUN" and "stage_image.sh --cuda" in rest for name, rest in instructions(DOCKERFILE.read_text()))


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """Returns the CUDA image's root file system, made of the programs of build/bin."""
    if os.geteuid() != 0:
        pytest.skip("another root file system needs root")
    if not (ROOT / "build/lib/libdapd_cuda.so").exists():
        pytest.skip("build/ has no CUDA backend")
    folder = tmp_path_factory.mktemp("cuda-image")
    try:
        result = subprocess.run([ROOT / "deploy/package.sh", "--cuda", folder / "package"], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        result = stage(folder / "package", folder / "root", "--cuda")
        assert result.returncode == 0, result.stderr
        shutil.rmtree(folder / "package")
        yield folder / "root"
    finally:
        shutil.rmtree(folder)


def test_its_programs_answer(image):
    for program in PROGRAMS:
        for question in ("--help", "--version"):
            result = start(image, program, question)
            assert result.returncode == 0 and result.stdout, (program, question, result.stderr)


def test_check_says_kernels_driver_and_gpus(image):
    result = start(image, "dapd", "check", CONFIG, *ON_CUDA)
    assert result.returncode == 0, result.stderr
    lines = {line[:16].strip(): line[17:] for line in result.stdout.splitlines()}
    assert lines["kernels"].startswith("our own on GPUs, by nvcc 13.0.") and lines["kernels"].endswith("for sm_80, sm_90, sm_100, sm_120")
    assert lines["gpus"].startswith("none usable: ") and "libcuda.so.1" in lines["gpus"]


@pytest.mark.parametrize("program", PROGRAMS[1:])
def test_a_service_says_that_it_misses_a_driver(program, image):
    result = start(image, program, CONFIG, *ON_CUDA, "--set", "run.output_dir=/tmp/runs")
    assert result.returncode == 3 and "libcuda.so.1" in result.stderr, result.stderr
    assert "no GPU can be used" in result.stderr


@pytest.mark.parametrize("folder", ["usr/lib/x86_64-linux-gnu", "usr/local/nvidia/lib64", "usr/lib64"],
                         ids=["the container toolkit", "GKE's device plugin", "CDI on a host that has it there"])
def test_an_old_driver_is_named_wherever_it_is_brought_in(folder, image):
    settings = dict(setting.split("=", 1) for setting in shlex.split(cuda_target()["ENV"]))
    (image / folder).mkdir(parents=True, exist_ok=True)
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        shutil.copy(FAKE / name, image / folder / name)
    try:
        result = start(image, "dapd-teacher", CONFIG, *ON_CUDA, **settings, FAKE_NVIDIA_CUDA="12040", FAKE_NVIDIA_GPUS="NVIDIA H100|9.0|80|80")
        assert result.returncode == 3 and "is too old: it is for CUDA 12.4, and CUDA 13.0 needs driver 580 or newer" in result.stderr, result.stderr
    finally:
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            (image / folder / name).unlink()


def test_cuda_finds_all_of_its_libraries_there_but_the_drivers(image):
    """Uses the loader's own list for libdapd_cuda.so and for the libraries that it loads by name."""
    loader = "/lib64/ld-linux-x86-64.so.2"
    libraries = sorted(path.name for path in (image / "opt/dapd/lib").iterdir())
    assert "libdapd_cuda.so" in libraries and any(name.startswith("libnccl.so") for name in libraries)
    for name in libraries:
        listed = inside(image, loader, "--list", f"/opt/dapd/lib/{name}", environment={}, capture_output=True, text=True)
        missing = [line.split()[0] for line in listed.stdout.splitlines() if "not found" in line]
        # If a library cannot be loaded at all for a missing library, the list ends with that name.
        missing += re.findall(r"error while loading shared libraries: (\S+):", listed.stderr)
        assert listed.returncode == 0 or missing, (name, listed.stderr)
        assert set(missing) <= {"libcuda.so.1"}, (name, missing)

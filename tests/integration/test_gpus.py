"""Real programs on machines whose driver and GPUs are simulated (tests/fakes/nvidia_driver.cc)."""

import json
import os
import shutil
import subprocess
import urllib.request

import pytest

from workspace import BIN, free_port, set_flags, wait_for

FAKE = BIN.parent / "fakes/nvidia"
H100 = "NVIDIA H100 80GB HBM3|9.0|79.2|78.9"
T4 = "Tesla T4|7.5|14.6|14.5"
BACKEND = "int DapdCudaDeviceCount(void) { return 1; }"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The programs beside a libdapd_cuda.so that finds a GPU and computes nothing."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "bin").mkdir()
    (folder / "lib").mkdir()
    for name in ("dapd", "dapd-rollout", "dapd-teacher", "dapd-trainer"):
        shutil.copy(BIN / name, folder / "bin" / name)
    compile_library(folder / "lib/libdapd_cuda.so", BACKEND)
    return folder


def compile_library(path, text, *flags):
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-o", path, *flags], input=text, text=True, check=True)


def machine(gpus, **settings):
    """The environment of a machine with these GPUs."""
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return {**environment, "LD_LIBRARY_PATH": str(FAKE), "FAKE_NVIDIA_GPUS": gpus, **settings}


def start(programs, program, workspace, environment, *flags, **settings):
    command = [programs / "bin" / program, *flags, workspace.config, *set_flags({"model.device": "cuda", "run.name": "no-gpus", **settings})]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


REFUSED = {
    "an old driver": (machine(H100, FAKE_NVIDIA_CUDA="12040"), "is too old: it is for CUDA 12.4, and CUDA 13.0 needs driver 580 or newer"),
    "an old card": (machine(T4), "GPU 0 (Tesla T4) has compute capability 7.5, but at least 8.0 (sm_80"),
    "an old card beside another": (machine(f"{T4};{H100}"), "leave it out with CUDA_VISIBLE_DEVICES=GPU-11111111-"),
    "a number too many": (machine(H100, CUDA_VISIBLE_DEVICES="0,1"), "CUDA_VISIBLE_DEVICES is '0,1': '1' is not a GPU of this machine"),
    "a number twice": (machine(f"{H100};{H100}", CUDA_VISIBLE_DEVICES="1,1"), "'1' is listed twice"),
    "numbers and ids": (machine(f"{H100};{H100}", CUDA_VISIBLE_DEVICES="1,GPU-10"), "it mixes numbers and ids"),
    "a hidden GPU": (machine(H100, CUDA_VISIBLE_DEVICES=""), "hides all GPUs"),
    "another kernel module": (machine(H100, FAKE_NVIDIA_INIT="803"), "belong to different drivers"),
    "a fabric that is not up": (machine(H100, FAKE_NVIDIA_INIT="802"), "nvidia-fabricmanager must be running"),
    "a small GPU": (machine("NVIDIA L4|8.9|0.1|0.1"), "NVIDIA L4 (GPU-10101010-1010-1010-1010-101010101010) has 0.1 GiB. "),
}


# What each program does by itself, and for the rest one for all.
CASES = [(program, name) for program in ("dapd-rollout", "dapd-trainer", "dapd") for name in ("an old driver", "a small GPU")]


@pytest.mark.parametrize("program, name", [*CASES, *(("dapd-teacher", name) for name in REFUSED)])
def test_a_gpu_that_cannot_be_used_is_refused_with_the_reason(program, name, programs, workspace):
    environment, reason = REFUSED[name]
    result = start(programs, program, workspace, environment, *(["run"] if program == "dapd" else []))
    assert result.returncode == 3 and reason in result.stderr, result.stderr
    assert not (workspace.runs("no-gpus") / "metrics.jsonl").exists()


HELD = "NVIDIA L4 (GPU-10101010-1010-1010-1010-101010101010) has 22.0 GiB, of which 0.1 GiB are free: another process holds the rest"


@pytest.mark.parametrize("program", ["dapd-rollout", "dapd-teacher", "dapd-trainer", "dapd"])
def test_memory_that_another_process_holds_is_waited_for_and_no_fault_of_the_configuration(program, programs, workspace):
    flags = ["run"] if program == "dapd" else []
    result = start(programs, program, workspace, machine("NVIDIA L4|8.9|22|0.1"), *flags, **{"run.gpu_wait_seconds": 0.5})
    assert result.returncode == 1, result.stderr
    assert "waiting up to 500ms (run.gpu_wait_seconds) for memory of a GPU: " in result.stderr, result.stderr
    assert f"{HELD} " in result.stderr.splitlines()[-1] and "did not become free within 500ms" in result.stderr.splitlines()[-1], result.stderr
    assert not (workspace.runs("no-gpus") / "metrics.jsonl").exists()


@pytest.mark.parametrize("program", ["dapd-teacher", "dapd-trainer", "dapd"])
def test_a_wait_for_memory_ends_when_it_is_free_and_at_a_stop(program, programs, workspace, tmp_path):
    (tmp_path / "free").write_text("0.1")
    environment = machine("NVIDIA L4|8.9|22|22", FAKE_NVIDIA_FREE=str(tmp_path / "free"))
    command = [programs / "bin" / program, *(["run"] if program == "dapd" else []), workspace.config,
               *set_flags({"model.device": "cuda", "run.name": f"waits-{program}"})]

    def waiting(log):
        process = subprocess.Popen(command, env=environment, stdout=log.open("w"), stderr=subprocess.STDOUT)
        wait_for(lambda: "waiting up to 5m" in log.read_text() or process.poll() is not None, what="the wait")
        assert process.poll() is None, log.read_text()
        return process

    stopped = waiting(tmp_path / "stopped.log")
    stopped.terminate()
    # Of a worker a signal is the end of its work.
    assert stopped.wait(20) == (0 if program == "dapd-teacher" else 130)

    log = tmp_path / "freed.log"
    freed = waiting(log)
    (tmp_path / "free").write_text("21")
    wait_for(lambda: "the memory of the GPU is free now" in log.read_text() or freed.poll() is not None, what="the memory")
    # The simulated GPU computes nothing.
    freed.kill()
    freed.wait(20)
    assert "the memory of the GPU is free now" in log.read_text()


@pytest.mark.parametrize("program", ["dapd-rollout", "dapd-teacher", "dapd-trainer", "dapd"])
def test_a_model_that_attention_does_not_take_is_refused(program, programs, workspace, tmp_path):
    model = shutil.copytree(workspace.model, tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "head_dim": 20}))
    settings = {"model.path": model, "model.precision": "bfloat16"}
    result = start(programs, program, workspace, machine(H100), *(["run"] if program == "dapd" else []), **settings)
    assert result.returncode == 3, result.stderr
    assert "multiples of 8 and at most 256 in bfloat16, but the model's is 20; set model.device to cpu" in result.stderr


def test_a_library_that_cuda_needs_is_named_with_its_package(programs, workspace, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    shutil.copy(programs / "bin/dapd-teacher", tmp_path / "bin")
    # A version that no machine has.
    library = tmp_path / "libnccl.so.99"
    compile_library(library, "int ncclGetVersion(void) { return 0; }", f"-Wl,-soname,{library.name}")
    compile_library(tmp_path / "lib/libdapd_cuda.so", "int ncclGetVersion(void); int DapdCudaDeviceCount(void) { return ncclGetVersion(); }", library)
    result = start(tmp_path, "dapd-teacher", workspace, machine(H100))
    assert result.returncode == 3, result.stderr
    assert "libnccl.so.99" in result.stderr and "NCCL is missing; it comes with the Python package nvidia-nccl-cu13" in result.stderr, result.stderr


@pytest.mark.skipif(not (BIN.parent / "lib/libdapd_cuda.so").exists(), reason="the build has no CUDA backend")
@pytest.mark.parametrize("program", ["dapd_generation_test", "dapd_model_test", "dapd_objective_test"])
def test_tests_that_need_a_gpu_load_the_backend_before_they_ask_libtorch(program):
    """LibTorch keeps its first answer about CUDA: tests that ask too early would all fail where there is a GPU."""
    result = subprocess.run([BIN / program, "--gtest_filter=*Cuda*:*Gpu*:*GPU*"], env=machine(H100), capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    # As far as it goes without a card: the driver is simulated, the backend is the real one.
    assert "the driver finds GPUs, but CUDA's runtime finds none" in result.stdout
    assert "before libdapd_cuda.so was loaded" not in result.stdout


def test_check_describes_the_gpus_and_says_whether_a_run_fits(programs, workspace):
    def check(gpus, **settings):
        result = start(programs, "dapd", workspace, machine(gpus, **settings), "check")
        assert result.returncode == 0, result.stderr
        return [line for line in result.stdout.splitlines() if line.startswith(("kernels ", "driver ", "gpus ", "fit ", " " * 17))]

    assert "gpus             2 of 79.2 GiB, at least 78.9 GiB free: NVIDIA H100 80GB HBM3 (sm_90)" in check(f"{H100};{H100}")
    assert "dapd run is refused here: the plan needs at least" in check("NVIDIA L4|8.9|0.1|0.1")[-1]
    held = check("NVIDIA L4|8.9|22|0.1")[-1]  # at once
    assert "dapd run would wait: the plan needs at least" in held and HELD in held
    old = check(H100, FAKE_NVIDIA_CUDA="12040")
    assert any("for CUDA up to 12.4" in line for line in old) and "needs driver 580 or newer" in old[-1]


def test_auto_computes_on_the_cpu_and_says_why(workspace, tmp_path):
    """Programs without libdapd_cuda.so beside them, on a machine with a GPU."""
    (tmp_path / "bin").mkdir()
    shutil.copy(BIN / "dapd-teacher", tmp_path / "bin")
    port_file, log = tmp_path / "port", tmp_path / "log"
    metrics = free_port()
    flags = set_flags({"model.device": "auto", "teacher.listen": "127.0.0.1:0", "metrics.teacher_listen": f"127.0.0.1:{metrics}"})
    with open(log, "w") as output:
        process = subprocess.Popen([tmp_path / "bin/dapd-teacher", workspace.config, *flags, "--port-file", port_file],
                                   env=machine(f"{H100};{H100}"), stderr=output, stdout=output)
    try:
        wait_for(lambda: "ready for an adapter" in log.read_text(), what="a ready teacher")
        assert "computing on the CPU: this build has no CUDA backend" in log.read_text()
        text = urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=10).read().decode()
        (info,) = [line for line in text.splitlines() if line.startswith("dapd_build_info{")]
        assert 'gpus="2 x NVIDIA H100 80GB HBM3"' in info
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0

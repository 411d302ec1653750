"""Real programs on machines whose driver and GPUs are simulated (tests/fakes/nvidia_driver.cc)."""

import json
import os
import re
import shutil
import subprocess
import urllib.request

import pytest
import yaml
from safetensors.torch import load_file, save_file

from workspace import BIN, free_port, set_flags, wait_for

FAKE = BIN.parent / "fakes/nvidia"
H100 = "NVIDIA H100 80GB HBM3|9.0|79.2|78.9"
T4 = "Tesla T4|7.5|14.6|14.5"
BACKEND = "int DapdCudaDeviceCount(void) { return 1; }"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Provides the programs beside a libdapd_cuda.so that finds a GPU and computes nothing."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "bin").mkdir()
    (folder / "lib").mkdir()
    for name in ("dapd", "dapd-rollout", "dapd-teacher", "dapd-trainer"):
        shutil.copy(BIN / name, folder / "bin" / name)
    compile_library(folder / "lib/libdapd_cuda.so", BACKEND)
    return folder


# A service of the folder `computing` is this script: it notes its GPU, and computes on the CPU.
COMPUTES_ON_THE_CPU = """#!/bin/sh
echo "{name} $CUDA_VISIBLE_DEVICES" >> "$CALLS"
exec {program} "$@" --set model.device=cpu
"""


@pytest.fixture(scope="module")
def computing(programs):
    """Provides the same programs, with services that take the GPUs that they are given, and compute on the CPU."""
    folder = programs.parent / f"{programs.name}-computing"
    shutil.copytree(programs, folder)
    for name in ("dapd-rollout", "dapd-teacher", "dapd-trainer"):
        write_service(folder, name, COMPUTES_ON_THE_CPU.format(name=name, program=programs / "bin" / name))
    return folder


def write_service(folder, name, script):
    path = folder / "bin" / name
    path.unlink()
    path.write_text(script)
    path.chmod(0o755)


def compile_library(path, text, *flags):
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-o", path, *flags], input=text, text=True, check=True)


def machine(gpus, **settings):
    """Returns the environment of a machine with these GPUs."""
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
    "a number beyond the machine's": (machine(";".join([H100] * 8), CUDA_VISIBLE_DEVICES="0,9"), "'9' is not a GPU of this machine, which has GPUs 0 to 7"),
    "a hidden GPU": (machine(H100, CUDA_VISIBLE_DEVICES=""), "hides all GPUs"),
    "another kernel module": (machine(H100, FAKE_NVIDIA_INIT="803"), "belong to different drivers"),
    "a fabric that is not up": (machine(H100, FAKE_NVIDIA_INIT="802"), "nvidia-fabricmanager must be running"),
    "a small GPU": (machine("NVIDIA L4|8.9|0.1|0.1"), "NVIDIA L4 (GPU-10101010-1010-1010-1010-101010101010) has 0.1 GiB. "),
}


# Each program handles these cases itself; in the other cases one program stands for all.
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
    # For a worker a signal is the end of its work.
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
    weights = load_file(model / "model.safetensors")
    for name, tensor in weights.items():
        sizes = [20 * size // config["head_dim"] for size in tensor.shape]
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight", "q_norm.weight", "k_norm.weight")):
            weights[name] = tensor[: sizes[0]].clone()
        elif name.endswith("o_proj.weight"):
            weights[name] = tensor[:, : sizes[1]].clone()
    save_file(weights, model / "model.safetensors")
    settings = {"model.path": model, "model.precision": "bfloat16"}
    result = start(programs, program, workspace, machine(H100), *(["run"] if program == "dapd" else []), **settings)
    assert result.returncode == 3, result.stderr
    assert "multiples of 8 and at most 256 in bfloat16, but the model's is 20; set model.device to cpu" in result.stderr


def test_a_library_that_cuda_needs_is_named_with_its_package(programs, workspace, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    shutil.copy(programs / "bin/dapd-teacher", tmp_path / "bin")
    # No machine has this version.
    library = tmp_path / "libnccl.so.99"
    compile_library(library, "int ncclGetVersion(void) { return 0; }", f"-Wl,-soname,{library.name}")
    compile_library(tmp_path / "lib/libdapd_cuda.so", "int ncclGetVersion(void); int DapdCudaDeviceCount(void) { return ncclGetVersion(); }", library)
    result = start(tmp_path, "dapd-teacher", workspace, machine(H100))
    assert result.returncode == 3, result.stderr
    assert "libnccl.so.99" in result.stderr and "NCCL is missing; it comes with the Python package nvidia-nccl-cu13" in result.stderr, result.stderr


@pytest.mark.skipif(not (BIN.parent / "lib/libdapd_cuda.so").exists(), reason="the build has no CUDA backend")
@pytest.mark.parametrize("program", ["dapd_generation_test", "dapd_model_test", "dapd_objective_test"])
def test_tests_that_need_a_gpu_load_the_backend_before_they_ask_libtorch(program):
    """LibTorch keeps its first answer about CUDA: tests that ask too early would all fail on a machine with a GPU."""
    result = subprocess.run([BIN / program, "--gtest_filter=*Cuda*:*Gpu*:*GPU*"], env=machine(H100), capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    # This goes as far as possible without a card: the driver is simulated, the backend is real.
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


def started(calls):
    """Returns the GPUs of the processes of each program, sorted, and forgets them."""
    found = {}
    for line in calls.read_text().splitlines():
        name, _, gpus = line.partition(" ")
        found.setdefault(name, []).append(gpus)
    calls.unlink()
    return {name: sorted(gpus) for name, gpus in found.items()}


def split_of(run):
    config = yaml.safe_load((run / "config.yaml").read_text())
    return [config["trainer"]["ranks"], config["run"]["teacher_workers"], config["run"]["rollout_workers"], config["rollout"]["tensor_parallel"]]


def test_a_run_uses_all_gpus_as_check_recommends_and_goes_on_with_its_split(computing, workspace, tmp_path):
    calls = tmp_path / "calls"

    def run(gpus, **settings):
        return start(computing, "dapd", workspace, machine(";".join([H100] * gpus), CALLS=str(calls)), "run", **{"run.name": "all-gpus", "run.num_threads": 1, **settings})

    plan = start(computing, "dapd", workspace, machine(""), "check", "--gpus", "8").stdout
    ranks, teachers, rollouts = map(int, re.search(r"^split .* of 8: ranks (\d+), teachers (\d+), rollouts (\d+);", plan, re.M).groups())
    assert ranks > 1 and ranks + teachers + rollouts == 8, plan
    first = run(8, **{"trainer.steps": 1, "evaluation.path": workspace.folder / "held_out.jsonl", "evaluation.kl_problems": 1})
    assert first.returncode == 0, first.stderr
    print(first.stderr)
    assert "its rollout workers answer alone" in first.stderr
    line = re.search(r"8 GPUs: .*", first.stderr)[0]
    assert f"{ranks} trainer ranks on 0, 1" in line and "are not used" not in first.stderr
    gpus = started(calls)
    assert {name: len(of) for name, of in gpus.items()} == {"dapd-trainer": ranks, "dapd-teacher": teachers, "dapd-rollout": rollouts}
    assert sorted(sum(gpus.values(), [])) == [str(gpu) for gpu in range(8)]
    folder = workspace.runs("all-gpus")
    assert split_of(folder) == [ranks, teachers, rollouts, 1]

    # With more GPUs it continues as it began, and says which setting would use them.
    more = run(10, **{"trainer.steps": 2})
    assert more.returncode == 0, more.stderr
    assert split_of(folder) == [ranks, teachers, rollouts, 1] and "the run goes on with the split that it began with" in more.stderr, more.stderr
    assert {name: len(of) for name, of in started(calls).items()} == {"dapd-trainer": ranks, "dapd-teacher": teachers, "dapd-rollout": rollouts}
    # With fewer GPUs it cannot continue.
    fewer = run(3, **{"trainer.steps": 3})
    assert fewer.returncode == 0, fewer.stderr
    assert split_of(folder) == [1, 1, 1, 1] and "the result is then the same up to rounding" in fewer.stderr, fewer.stderr
    assert started(calls) == {"dapd-trainer": ["0"], "dapd-rollout": ["1"], "dapd-teacher": ["2"]}
    assert len(workspace.metrics("all-gpus")) == 3


def test_ranks_share_a_gpu_where_nccl_is_told_so(computing, workspace, tmp_path):
    """Several ranks are tested in this way on a machine with one GPU."""
    calls = tmp_path / "calls"

    def run(**environment):
        return start(computing, "dapd", workspace, machine(H100, CALLS=str(calls), **environment), "run",
                     **{"run.name": "shared-gpu", "run.num_threads": 1, "trainer.ranks": 2, "rollout.tensor_parallel": 2, "trainer.steps": 1})

    refused = run()
    assert refused.returncode == 3 and "trainer.ranks is 2, but the number of GPUs here is 1; each rank needs its own" in refused.stderr, refused.stderr
    told = run(NCCL_MULTI_RANK_GPU_ENABLE="1")
    assert told.returncode == 0, told.stderr
    assert started(calls) == {"dapd-trainer": ["0", "0"], "dapd-rollout": ["0"], "dapd-teacher": ["0"]}
    # Each of them plans with a fifth of it: two trainer ranks, two processes of the worker, a teacher.
    assert yaml.safe_load((workspace.runs("shared-gpu") / "config.yaml").read_text())["run"]["gpu_processes"] == 5


def test_keys_that_are_set_stay_and_unused_gpus_are_warned_of(programs, workspace):
    eight = ";".join([H100] * 8)

    def check(environment, **settings):
        result = start(programs, "dapd", workspace, environment, "check", **settings)
        assert result.returncode == 0, result.stderr
        return re.search(r"^dapd run +(.*)", result.stdout, re.M)[1], result.stderr

    # The environment or --set may give it.
    line, said = check(machine(eight, DAPD_RUN__TEACHER_WORKERS="1"), **{"trainer.ranks": 1, "run.rollout_workers": 1})
    assert line == "8 GPUs: 1 trainer rank on 0; 1 rollout worker on 1; 1 teacher on 2"
    assert "5 of 8 GPUs are not used (3, 4, 5, 6, 7)" in said and "trainer.ranks=1 (--set)" in said and "run.gpus=3 leaves them to others" in said, said
    line, said = check(machine(eight, DAPD_RUN__ROLLOUT_WORKERS="2"), **{"trainer.ranks": 2})
    assert line == "8 GPUs: 2 trainer ranks on 0, 1; 2 rollout workers on 2, 3; 4 teachers on 4, 5, 6, 7" and "not used" not in said, (line, said)
    # The user chooses some of them.
    line, said = check(machine(eight, CUDA_VISIBLE_DEVICES="6,4,2,0"), **{"run.gpus": 3})
    assert line == "3 GPUs: 1 trainer rank on 6; 1 rollout worker on 4; 1 teacher on 2" and "not used" not in said
    line, _ = check(machine(f"{H100};{H100}"))
    assert line == "2 GPUs, which processes share: 1 trainer rank on 0; 1 rollout worker on 1; 1 teacher on 0"


MORE_THAN_THERE_ARE = {
    "run.gpus": ({"run.gpus": 9}, "run.gpus is 9 (--set), but there are 8 GPUs (0, 1, 2, 3, 4, 5, 6, 7): lower it, or leave it at auto"),
    "trainer.ranks": ({"trainer.ranks": 9, "trainer.batch_size": 18}, "trainer.ranks is 9, but the number of GPUs here is 8; each rank needs its own"),
    "--ranks": ({"trainer.batch_size": 18}, "trainer.ranks is 9, but the number of GPUs here is 8; each rank needs its own"),
    "rollout.tensor_parallel": ({"rollout.tensor_parallel": 16}, "rollout.tensor_parallel is 16, but the number of GPUs here is 8"),
    "no number": ({"run.gpus": "all"}, "run.gpus is 'all' and must be auto or a number of GPUs from 1 to 256"),
}


@pytest.mark.parametrize("name", MORE_THAN_THERE_ARE)
def test_more_than_the_machine_has_is_refused_before_anything_starts(name, programs, workspace):
    settings, reason = MORE_THAN_THERE_ARE[name]
    flags = ["--ranks", "9"] if name == "--ranks" else []
    result = start(programs, "dapd", workspace, machine(";".join([H100] * 8)), "run", *flags, **settings)
    assert result.returncode == 3 and reason in result.stderr, result.stderr
    assert not (workspace.runs("no-gpus") / "metrics.jsonl").exists()


def test_gpus_that_are_asked_for_where_there_are_none_are_an_error(programs, workspace):
    result = start(programs, "dapd", workspace, machine(""), "run", **{"model.device": "auto", "run.gpus": 2})
    assert result.returncode == 3 and "run.gpus is 2, but no GPU can be used: " in result.stderr, result.stderr


@pytest.fixture(scope="module")
def evaluation(workspace):
    """Returns the arguments of an evaluation of four problems with two answers each, and the answers that one process
    gives."""
    rows = [{"id": f"q{i}", "problem": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(4)]
    data = workspace.folder / "sums.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    call = ["eval", "--model", workspace.model, "--data", data, "--samples", "2", "--max-new-tokens", "12", "--temperature", "1", "--precision", "float32", "--json"]
    output = workspace.folder / "sums-alone.jsonl"
    workspace.dapd(*call, "--device", "cpu", "--output", output)
    return call, output.read_text()


def evaluate(folder, evaluation, environment, *flags):
    return subprocess.run([folder / "bin/dapd", *evaluation[0], *flags], env=environment, capture_output=True, text=True, timeout=240)


def test_an_evaluation_has_a_worker_on_each_gpu_and_the_answers_of_one_process(computing, workspace, evaluation, tmp_path):
    calls = tmp_path / "calls"
    for number, (settings, flags, gpus) in enumerate((
            ({}, [], ["0", "1", "2"]), ({}, ["--gpus", "2"], ["0", "1"]), ({"CUDA_VISIBLE_DEVICES": "2,0"}, [], ["0", "2"]))):
        output = tmp_path / f"{number}.jsonl"
        result = evaluate(computing, evaluation, machine(";".join([H100] * 3), CALLS=str(calls), **settings), "--output", output, *flags)
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout)["problems"] == 4
        assert output.read_text() == evaluation[1]
        assert started(calls) == {"dapd-rollout": gpus}
    # There are no more workers than answers left.
    answers = evaluation[1].splitlines(keepends=True)
    output.write_text("".join(answers[2:]))
    result = evaluate(computing, evaluation, machine(";".join([H100] * 3), CALLS=str(calls)), "--output", output)
    assert result.returncode == 0 and output.read_text() == evaluation[1], result.stderr
    assert started(calls) == {"dapd-rollout": ["0", "1"]}


def test_a_worker_of_an_evaluation_that_dies_is_started_again(programs, computing, evaluation, tmp_path):
    folder = shutil.copytree(computing, tmp_path / "dying")
    dies_once = f"""#!/bin/sh
if mkdir {tmp_path}/died 2>/dev/null; then kill -9 $$; fi
exec {programs}/bin/dapd-rollout "$@" --set model.device=cpu
"""
    write_service(folder, "dapd-rollout", dies_once)
    output = tmp_path / "answers.jsonl"
    result = evaluate(folder, evaluation, machine(f"{H100};{H100}"), "--output", output)
    assert result.returncode == 0 and output.read_text() == evaluation[1], result.stderr
    assert re.search(r"the worker on GPU [01] was killed by signal 9 \(SIGKILL\), .*; restarting it", result.stderr), result.stderr


@pytest.mark.parametrize("ends, code, how, times", [("exit 3", 3, "ended with code 3", 1), ("kill -ABRT $$", 1, "crashed by SIGABRT", 3)], ids=["refuses", "crashes"])
def test_a_worker_of_an_evaluation_that_cannot_work_ends_it_with_its_words(ends, code, how, times, computing, evaluation, tmp_path):
    folder = shutil.copytree(computing, tmp_path / "broken")
    write_service(folder, "dapd-rollout", f"#!/bin/sh\necho start $CUDA_VISIBLE_DEVICES >> {tmp_path}/calls\necho this GPU has fallen off the bus >&2\n{ends}\n")
    result = evaluate(folder, evaluation, machine(f"{H100};{H100}"))
    assert result.returncode == code, result.stderr
    assert re.search(rf"the worker on GPU [01] {how} and would do so again; its last lines:\n  .*fallen off the bus", result.stderr), result.stderr
    assert max(map(len, started(tmp_path / "calls").values())) <= 2 * times


def test_gpus_that_an_evaluation_cannot_have_are_refused(programs, evaluation):
    two = machine(f"{H100};{H100}")
    for environment, flags, code, reason in (
            (two, ["--gpus", "3"], 3, "--gpus is 3, but there are 2 GPUs (0, 1)"),
            (two, ["--gpus", "2", "--device", "cpu"], 2, "--gpus is for GPUs, and --device is cpu"),
            (two, ["--gpus", "2", "--workers", "127.0.0.1:1"], 2, "--workers names others"),
            (machine(""), ["--gpus", "2"], 3, "--gpus 2: "),
            (machine(f"{H100};{H100}", CUDA_VISIBLE_DEVICES="0,9"), [], 3, "'9' is not a GPU of this machine")):
        result = evaluate(programs, evaluation, environment, *flags)
        assert result.returncode == code and reason in result.stderr, (flags, result.stderr)


def test_auto_computes_on_the_cpu_and_says_why(workspace, tmp_path):
    """The programs have no libdapd_cuda.so beside them, on a machine with a GPU."""
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

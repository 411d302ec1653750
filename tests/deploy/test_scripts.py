"""Runs the scripts that install, build and count as a user would."""

import os
import pathlib
import re
import resource
import shlex
import shutil
import subprocess
import sys

import pytest

import image_root

ROOT = pathlib.Path(__file__).resolve().parents[2]

CTEST_REPORT = """<testsuite tests="4" failures="1" disabled="0" skipped="1">
  <testcase name="A.Works" classname="A.Works" time="0.1" status="run"/>
  <testcase name="A.Fails" classname="A.Fails" time="0.1" status="fail"><failure message=""/></testcase>
  <testcase name="A.NeedsAGpu" classname="A.NeedsAGpu" time="0.1" status="notrun"><skipped message="SKIP"/></testcase>
  <testcase name="A.WorksToo" classname="A.WorksToo" time="0.1" status="run"/>
</testsuite>"""
PYTEST_REPORT = """<testsuites><testsuite tests="3" errors="1" failures="0" skipped="1">
  <testcase classname="test_x" name="test_a"/>
  <testcase classname="test_x" name="test_b"><skipped message="no GPU"/></testcase>
  <testcase classname="test_x" name="test_c"><error message="fixture"/></testcase>
</testsuite></testsuites>"""


def count(folder):
    return subprocess.run([sys.executable, ROOT / "tests/count_results.py", folder], capture_output=True, text=True)


def write_run(folder, name, report):
    (folder / f"{name}.log").write_text("output")
    if report is not None:
        (folder / f"{name}.xml").write_text(report)


def test_all_reports_are_counted_and_failures_named(tmp_path):
    write_run(tmp_path, "ctest-unit", CTEST_REPORT)
    write_run(tmp_path, "pytest-oracle", PYTEST_REPORT)
    result = count(tmp_path)
    assert result.stdout.splitlines()[-1] == "3 passed, 2 failed, 2 skipped"
    assert result.returncode == 1
    assert "failed: A.Fails" in result.stdout and "skipped: A.NeedsAGpu" in result.stdout
    assert "failed: test_x test_c: fixture (" in result.stdout


def test_a_run_that_died_is_a_failure(tmp_path):
    write_run(tmp_path, "pytest-oracle", PYTEST_REPORT.replace("<error message=\"fixture\"/>", ""))
    assert count(tmp_path).returncode == 0
    # The suite ends before it has a report, or while it writes its report.
    for report in (None, "", CTEST_REPORT[:200]):
        write_run(tmp_path, "ctest-unit", report)
        result = count(tmp_path)
        assert result.stdout.splitlines()[-1] == "2 passed, 1 failed, 1 skipped" and result.returncode == 1


def test_no_test_at_all_is_no_success(tmp_path):
    result = count(tmp_path)
    assert result.stdout.splitlines()[-1] == "0 passed, 0 failed, 0 skipped" and result.returncode == 1


def phase(tmp_path, command):
    script = f"set -euo pipefail; source {ROOT}/deploy/phase.sh; phase 'a name' {tmp_path}/logs/x.log {command}; echo after"
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True)


def test_a_phase_prints_one_line_and_keeps_its_log(tmp_path):
    result = phase(tmp_path, "echo inside")
    assert result.returncode == 0 and result.stderr == ""
    assert re.fullmatch(r"a name +\d+ s\nafter\n", result.stdout), result.stdout
    assert (tmp_path / "logs/x.log").read_text() == "inside\n"


def test_a_failing_phase_ends_the_script_with_its_code_and_log(tmp_path):
    result = phase(tmp_path, "bash -c 'echo the reason; exit 7'")
    assert result.returncode == 7 and "after" not in result.stdout
    assert "the reason" in result.stderr and f"{tmp_path}/logs/x.log" in result.stderr


@pytest.mark.parametrize("script", ["deploy/install.sh", "deploy/build.sh", "deploy/package.sh", "deploy/stage_image.sh", "deploy/build_image.sh", "deploy/release.sh",
                                    "deploy/quickstart.sh", "deploy/fetch.sh", "tests/run.sh", "tests/gpu/pack.sh", "tests/gpu/run.sh"])
def test_an_unknown_option_is_a_usage_error(script):
    result = subprocess.run([ROOT / script, "--no-such-option"], capture_output=True, text=True)
    assert result.returncode == 2 and f"usage: {script}" in result.stderr


@pytest.mark.parametrize("call", ["deploy/install.sh --copy --follow", "deploy/build.sh --tests --cuda", "deploy/quickstart.sh --tiny --smollm2"])
def test_a_second_option_is_refused_and_not_passed_over(call):
    script, *options = call.split()
    result = subprocess.run([ROOT / script, *options], capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and f"usage: {script}" in result.stderr


def test_a_second_install_takes_no_time(tmp_path):
    """The tests run in the environment that deploy/install.sh --tests made. Other checkouts may share it: if it is not what this checkout
    asks for, it stays as it is."""
    for file in (*(ROOT / "deploy" / f"requirements{part}.txt" for part in ("", "-cuda", "-copy", "-follow", "-release")),
                 ROOT / "tests/requirements.txt"):
        copy = ROOT / ".deps/venv/installed" / str(file.relative_to(ROOT)).replace("/", "-")
        assert copy.exists() and copy.read_text() == file.read_text(), f"{file} is not installed: run deploy/install.sh --tests"
    (tmp_path / "apt-get").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "apt-get").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run([ROOT / "deploy/install.sh", "--tests"], env=environment, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert result.returncode == 0 and result.stdout == ""
    # The limit is for processor time, since other tests run meanwhile.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 5


@pytest.mark.parametrize("sudo", [None, "exit 1"], ids=["no sudo", "a sudo that refuses"])
def test_without_root_the_missing_packages_are_printed(sudo, tmp_path):
    """Stand-ins on PATH act as if nothing were installed and as if the user could not become root."""
    stand_ins = {"dpkg-query": "exit 1", "id": "echo 1000"} | ({"sudo": sudo} if sudo else {})
    for name, text in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    for name in ("bash", "comm", "dirname", "env", "sed", "sort"):
        (tmp_path / name).symlink_to(subprocess.check_output(["which", name], text=True).strip())
    environment = {**os.environ, "PATH": str(tmp_path)}
    result = subprocess.run([ROOT / "deploy/install.sh"], env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert result.returncode == 1
    assert "Run as root:\n  apt-get update && apt-get install -y build-essential ca-certificates" in result.stderr


ALL_INSTALLED = 'shift 2; for name; do echo "installed $name"; done'


def copy_scripts(tree):
    (tree / "deploy").mkdir()
    for path in (ROOT / "deploy").glob("*"):
        if path.suffix in (".sh", ".txt"):
            shutil.copy(path, tree / "deploy")


def write_stand_ins(texts):
    for path, text in texts.items():
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)


def test_an_environment_that_was_not_made_to_its_end_is_made_again(tmp_path):
    """A call that ended early leaves a Python without its pip. Nothing is installed here."""
    copy_scripts(tmp_path)
    write_stand_ins({tmp_path / "dpkg-query": ALL_INSTALLED, tmp_path / "a python": f"""
echo "$@" >>{tmp_path}/calls
[ "$2" = venv ] || exit 0
mkdir -p .deps/venv/bin
cp "$0" .deps/venv/bin/python
[ -e whole ]"""})
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": str(tmp_path / "a python")}
    codes = []
    for _ in range(3):
        codes.append(subprocess.run([tmp_path / "deploy/install.sh"], env=environment, capture_output=True).returncode)
        (tmp_path / "whole").touch()
    calls = (tmp_path / "calls").read_text().splitlines()
    assert codes == [1, 0, 0] and [call.startswith("-m venv") for call in calls if call.startswith("-m")][:3] == [True, True, False]
    assert sum(call.startswith("-m venv") for call in calls) == 2


def test_an_install_that_is_interrupted_leaves_no_policy_behind(tmp_path):
    """Debian's policy file is at another place, and the stand-in for sudo sends the signal."""
    copy_scripts(tmp_path)
    script, policy = tmp_path / "deploy/install.sh", tmp_path / "policy-rc.d"
    script.write_text(script.read_text().replace("/usr/sbin/policy-rc.d", str(policy)))
    write_stand_ins({tmp_path / "dpkg-query": "exit 1", tmp_path / "id": "echo 1000", tmp_path / "apt-get": "exit 0", tmp_path / "sudo": f"""
case $1 in
  -n) exit ;;
  env) [ ! -x {policy} ] || touch {tmp_path}/was-there; kill -TERM $PPID ;;
  *) exec "$@" ;;
esac"""})
    result = subprocess.run([script], env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, capture_output=True, stdin=subprocess.DEVNULL)
    assert result.returncode != 0 and (tmp_path / "was-there").exists() and not policy.exists()


KERNEL_MODULE = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (builder)  Wed Aug 27\n"


@pytest.mark.parametrize("driver, option, with_cuda", [
    (None, None, False), ("550.54.14", None, False), ("580.82.07", None, True), (None, "--cuda", True), ("550.54.14", "--cuda", True)])
def test_cuda_is_installed_where_a_driver_can_use_it_or_where_it_is_asked_for(driver, option, with_cuda, tmp_path):
    """The script runs in its own tree, with a stand-in for its environment's Python and with all Debian packages installed."""
    copy_scripts(tmp_path)
    (tmp_path / ".deps/venv/bin").mkdir(parents=True)
    (tmp_path / ".deps/venv/installed").mkdir()
    write_stand_ins({tmp_path / ".deps/venv/bin/python": f'echo "$@" >>{tmp_path}/calls', tmp_path / "dpkg-query": ALL_INSTALLED})
    version = tmp_path / "version"
    if driver is not None:
        version.write_text(KERNEL_MODULE.format(driver))
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "NVIDIA_VERSION_FILE": str(version)}
    result = subprocess.run([tmp_path / "deploy/install.sh", *([option] if option else [])], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    calls = (tmp_path / "calls").read_text()
    assert ("deploy/requirements-cuda.txt" in calls) == ("deploy/fetch_flash_attention.py .deps/flash-attention-3" in calls) == with_cuda
    assert ("driver of 580 or newer" in result.stderr) == (option == "--cuda" and driver == "550.54.14")


def test_the_compiler_is_of_the_version_of_the_cuda_libraries():
    """Compares nvcc's four packages and the runtime that its code is linked with."""
    text = "".join((ROOT / f"deploy/requirements{name}.txt").read_text() for name in ("", "-cuda"))
    pinned = dict(line.split("==") for line in text.splitlines() if "==" in line)
    packages = ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-cccl", "nvidia-cuda-runtime", "nvidia-cuda-nvrtc", "cuda-toolkit")
    assert {pinned[name].rsplit(".", 1)[0] for name in packages} == {"13.0"}


def test_a_cuda_build_without_a_compiler_for_its_kernels_fails(tmp_path):
    """A build that computed only by LibTorch's operations would be slower, and nobody would notice."""
    command = ["cmake", "-S", ROOT, "-B", tmp_path, "-G", "Ninja", "-DDAPD_CUDA=ON", "-DDAPD_TESTS=OFF", "-DDAPD_NVCC=/bin/false"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode != 0 and not (tmp_path / "build.ninja").exists()
    assert "The host compiler of /bin/false" in result.stdout and "-DDAPD_CUDA=OFF leaves CUDA out" in result.stdout


def test_the_sources_build_in_a_folder_with_a_space_in_its_name(tmp_path):
    place = tmp_path / "a space"
    place.mkdir()
    (place / "sources").symlink_to(ROOT)
    subprocess.run(["cmake", "-S", place / "sources", "-B", place / "build", "-G", "Ninja", "-DDAPD_TESTS=ON"], check=True, capture_output=True)
    commands = subprocess.run(["ninja", "-C", place / "build", "-t", "commands"], check=True, capture_output=True, text=True).stdout
    words = {word for command in commands.splitlines() for word in shlex.split(command)}
    assert any(word.startswith(f"{place}/sources/") for word in words)
    assert not [word for word in words if word.startswith("space/")], "parts of paths that were cut"


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ccache") is None, reason="needs root and ccache")
@pytest.mark.parametrize("home", [{}, {"HOME": "/"}, {"HOME": "/nonexistent"}], ids=["none", "not writable", "not there"])
def test_a_build_needs_no_home(home, tmp_path):
    """No file names the user, which is possible in a container. A stand-in for CMake compiles."""
    (tmp_path / "deploy").mkdir()
    for name in ("build.sh", "phase.sh"):
        shutil.copy(ROOT / "deploy" / name, tmp_path / "deploy")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/cmake").write_text("#!/bin/sh\necho 'int x;' >x.c && exec ccache cc -c x.c\n")
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o755)
        os.chown(path, 12345, 12345)
    namespaces = ["unshare", "--mount", "bash", "-c", 'mount --bind "$1" /mnt && cd /mnt && shift && exec "$@"', "bash", tmp_path]
    user = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "env", "--ignore-environment", f"PATH=/mnt/bin:{os.environ['PATH']}"]
    result = subprocess.run([*namespaces, *user, *[f"{key}={value}" for key, value in home.items()], "deploy/build.sh"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert (tmp_path / "x.o").exists()


def test_an_image_build_reads_only_what_it_needs():
    """A working tree may contain models, data and keys, and layers are pushed to registries."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*", "what is not named stays out"
    named = [line[1:] for line in lines if line.startswith("!")]
    assert named and all((ROOT / name).exists() for name in named)
    assert not {"models", "data", "runs", "input", "certificates", ".git", ".deps"} & set(named)
    # A later line of the file wins: these stay out of the folders that are read. Compose reads deploy/.env, which may hold the credentials
    # of an object store (deploy/compose.copy.yaml).
    assert {"**/.env*", "**/*.key", "**/*.safetensors", "**/*.parquet", "deploy/models"} <= set(lines[1 + len(named):])
    tracked = subprocess.run(["git", "ls-files", *named], cwd=ROOT, capture_output=True, text=True).stdout.split()
    left_out = (".key", ".pem", ".crt", ".safetensors", ".parquet")
    assert not [name for name in tracked if name.endswith(left_out) and not name.startswith("deploy/models/")]


def test_an_edit_of_a_source_installs_nothing_anew():
    """Layers before the first instruction that reads the sources are kept, in each stage and in its base."""
    stages = image_root.stages(image_root.DOCKERFILE.read_text())

    def all_steps(stage):
        base, steps = stages[stage]
        return (all_steps(base) if base in stages else []) + steps

    installs = 0
    for stage in stages:
        behind = False
        for name, rest in all_steps(stage):
            behind = behind or (name == "COPY" and rest == ". .")
            if name == "RUN" and ("install.sh" in rest or "apt-get" in rest):
                installs += 1
                assert not behind, f"{stage} installs behind the sources: {rest}"
    assert installs
    # Stages that install may read only the files that say what to install.
    for stage in ("deps", "deps-cuda"):
        copied = [source for name, rest in all_steps(stage) if name == "COPY" for source in rest.split()[:-1]]
        assert set(copied) == {"deploy/stage_*.sh", "deploy/instal[l].sh", "deploy/phas[e].sh", "deploy/requirement*.txt",
                               "deploy/fetch_flash_attentio[n].py"}
    assert any("install.sh --cuda" in rest for name, rest in all_steps("build-cuda"))
    # The classic builder builds all stages above its target.
    order = list(stages)
    assert order.index("cpu") < order.index("deps-cuda") and not any("--cuda" in rest for name, rest in all_steps("cpu"))


def test_an_image_that_nobody_named_is_named_by_its_sources(tmp_path):
    """Two builds of different sources must never report the same version."""
    stages = image_root.stages(image_root.DOCKERFILE.read_text())
    (step,) = [rest for name, rest in stages["build"][1] if name == "RUN" and rest.endswith(">/commit")]

    def name(**variables):
        return subprocess.run(["sh", "-euc", step.replace(">/commit", "")], cwd=tmp_path, check=True, capture_output=True, text=True,
                              env={"PATH": os.environ["PATH"], **variables}).stdout

    (tmp_path / "common").mkdir()
    (tmp_path / "common/a file.cc").write_text("one")
    first = name()
    assert re.fullmatch(r"sources-[0-9a-f]{12}", first)
    for folder in (".deps", "build"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "made").write_text("here")
    (tmp_path / "common/a file.cc").touch()
    assert name() == first
    (tmp_path / "common/a file.cc").write_text("two")
    assert name() != first
    assert name(DAPD_COMMIT="v1-2-gabc") == "v1-2-gabc"
    # Both builds of the programs get the commit.
    builds = [rest for base, steps in stages.values() for kind, rest in steps if kind == "RUN" and "deploy/build.sh" in rest]
    assert len(builds) == 2 and all("DAPD_COMMIT=$(cat /commit) deploy/build.sh" in rest for rest in builds)


@pytest.mark.parametrize("name", ["bin", "lib", "configs", "demo"])
def test_a_package_takes_the_place_of_nothing_but_a_package(name, tmp_path):
    """A home, /usr/local and / have folders with these names. The script runs in its own tree with a stand-in that installs nothing."""
    copy_scripts(tmp_path)
    write_stand_ins({tmp_path / "cmake": "exit 7"})
    file = tmp_path / "home" / name / "of another"
    file.parent.mkdir(parents=True)
    file.write_text("something")

    def package():
        return subprocess.run([tmp_path / "deploy/package.sh", tmp_path / "home"], capture_output=True, text=True,
                              env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})

    result = package()
    assert result.returncode == 1 and f"home/{name} was not made by this script" in result.stderr and file.exists()
    # An existing package is replaced, even if it is unfinished.
    (tmp_path / "home/bin").mkdir(exist_ok=True)
    (tmp_path / "home/bin/dapd-rollout").touch()
    assert package().returncode == 7 and not file.exists()


def test_an_image_can_be_read_by_others_whoever_made_its_package(tmp_path):
    """Containers run as a different user."""
    old = os.umask(0o077)
    try:
        for name in ("bin", "lib", "configs", "demo"):
            (tmp_path / "package" / name).mkdir(parents=True)
        shutil.copy("/bin/true", tmp_path / "package/bin/dapd")
        (tmp_path / "package/configs/container.yaml").write_text("{}")
        (tmp_path / "package/demo/train.jsonl").write_text("{}")
    finally:
        os.umask(old)
    subprocess.run([ROOT / "deploy/stage_image.sh", tmp_path / "package", tmp_path / "root"], check=True, capture_output=True)
    modes = {path: path.stat().st_mode & 0o777 for folder in ("opt", "etc/dapd") for path in [tmp_path / "root" / folder, *(tmp_path / "root" / folder).rglob("*")]}
    assert len(modes) == 9
    for path, mode in modes.items():
        assert mode == (0o755 if path.is_dir() or path.name == "dapd" else 0o644), path


def test_the_download_image_can_be_read_by_others_whoever_made_its_checkout(tmp_path):
    copied = "deploy/fetch_from_hub.py /opt/fetch/"
    steps = image_root.instructions((ROOT / "deploy/fetch.Dockerfile").read_text())
    behind = [rest for name, rest in steps[steps.index(("COPY", copied)):] if name == "RUN" and "/opt/fetch/" in rest]
    program = tmp_path / "fetch_from_hub.py"
    program.touch(0o600)
    subprocess.run(["sh", "-ec", "\n".join(behind).replace("/opt/fetch/", f"{tmp_path}/")], check=True)
    assert program.stat().st_mode & 0o777 == 0o644


def test_no_script_looks_for_its_own_folder_in_cdpath():
    """If CDPATH is exported, cd may go to another folder and prints that folder, which then becomes part of the script's path."""
    goes = 0
    for path in (path for folder in ("deploy", "tests", ".ci") for path in (ROOT / folder).rglob("*") if path.is_file()):
        text = path.read_bytes()
        if re.match(rb"#!.*sh\n", text) and b'cd "$(dirname ' in text:
            goes += 1
            assert b"\nunset CDPATH" in text.split(b'cd "$(dirname ')[0], path
    assert goes


def test_a_model_takes_the_place_of_nothing_else(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "another's").write_text("something")
    result = subprocess.run([sys.executable, ROOT / "deploy/make_tiny_model.py", "--output", folder], capture_output=True, text=True)
    assert result.returncode == 1 and result.stderr == f"{folder}: Directory not empty; it stays as it is: choose another --output, or remove it\n"
    assert [path.name for path in tmp_path.rglob("*")] == ["models", "another's"]

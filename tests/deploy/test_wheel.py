"""Makes the wheel of deploy/release.sh twice, examines it, and installs it with pip on bare Debians and beside incomplete versions of
torch."""

import base64
import csv
import email
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from packaging.metadata import Metadata
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from bare_debian import BareDebian, skip_without_debootstrap
from debian_root import debian_root
from wheel_environment import make_environment, site_packages

ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = ROOT / ".deps/venv"
sys.path.insert(0, str(ROOT / "deploy/release"))
import wheel_name  # noqa: E402

PROGRAMS = ("dapd", "dapd-rollout", "dapd-teacher", "dapd-trainer")
# The machine has the libraries that the tag promises, and GCC's libraries; torch brings the other libraries (deploy/release/make_wheel.py).
OF_THE_MACHINE = {"ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libresolv.so.2",
                  "libstdc++.so.6", "libgcc_s.so.1"}
OF_TORCH = {"libc10.so", "libtorch_cpu.so", "libgomp.so.1"}


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def info(unpacked):
    (found,) = unpacked.glob("*.dist-info")
    return found


def test_made_again_it_has_the_same_bytes(wheel, tmp_path):
    old = os.umask(0o077)
    try:
        subprocess.run([ROOT / "deploy/package.sh", tmp_path / "package again"], check=True, capture_output=True)
        subprocess.run([ROOT / "deploy/release.sh", "--unlocked", "--installed", tmp_path / "package again", "--output", tmp_path / "elsewhere", "wheel"],
                       check=True, capture_output=True, env={**os.environ, "TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8", "TMPDIR": str(tmp_path)})
    finally:
        os.umask(old)
    again = tmp_path / "elsewhere" / wheel.name
    digest = hashlib.sha256(again.read_bytes()).hexdigest()
    assert digest == hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert (again.parent / "SHA256SUMS").read_text() == f"{digest}  {wheel.name}\n"


def test_it_is_smaller_than_the_limit_and_tells_nothing_of_who_made_it(wheel):
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
    assert wheel.stat().st_size <= 100e6
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        entries = archive.infolist()
    assert len({entry.date_time for entry in entries}) == 1
    for entry in entries:
        is_program = re.match(r"dapd/(bin|libexec)/", entry.filename) is not None
        assert entry.external_attr >> 16 == 0o100755 if is_program else entry.external_attr >> 16 in (0o100644, 0o100755), entry.filename


@pytest.mark.parametrize("said, version", [
    ("0.1.0-55aa7a07abcd", "0.1.0+g55aa7a07abcd"), ("0.1.0-v0.1.0-3-g55aa7a07abcd", "0.1.0+v0.1.0.3.g55aa7a07abcd"),
    ("0.1.0-55aa7a07abcd-dirty", "0.1.0+g55aa7a07abcd.dirty"), ("0.1.0-v0.1.0", "0.1.0"), ("0.1.0", "0.1.0"), ("0.1.0-012345678901", "0.1.0+g012345678901")])
def test_a_version_is_one_of_pythons(said, version):
    assert wheel_name.wheel_version(said) == version
    assert str(parse_wheel_filename(f"dapd-{version}-py3-none-any.whl")[1]) == version


def test_its_name_says_where_it_runs(wheel):
    name, version, build, tags = parse_wheel_filename(wheel.name)
    assert name == "dapd" and build == () and tags & set(sys_tags())
    assert {str(tag) for tag in tags} == {wheel_name.wheel_tag()}
    said = subprocess.run([ROOT / "build/bin/dapd", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    assert str(version) == wheel_name.wheel_version(said)


@pytest.mark.parametrize("platform", ["manylinux_2_35_x86_64", "manylinux_2_36_aarch64", "macosx_14_0_arm64", "musllinux_1_2_x86_64"])
def test_pip_refuses_it_where_it_cannot_run(platform, wheel, tmp_path):
    result = subprocess.run([sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--only-binary=:all:", "--platform", platform, "--target",
                             tmp_path / "target", "--disable-pip-version-check", wheel], capture_output=True, text=True)
    assert result.returncode == 1 and result.stderr.splitlines() == [f"ERROR: {wheel.name} is not a supported wheel on this platform."]
    assert not (tmp_path / "target").exists()


def test_every_file_is_in_its_record(unpacked, info):
    rows = {name: (digest, size) for name, digest, size in csv.reader(io.StringIO((info / "RECORD").read_text()))}
    files = {str(path.relative_to(unpacked)): path for path in unpacked.rglob("*") if path.is_file()}
    assert set(rows) == set(files)
    assert rows.pop(f"{info.name}/RECORD") == ("", "")
    for name, (digest, size) in rows.items():
        data = files[name].read_bytes()
        assert size == str(len(data)) and digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode(), name


def test_its_metadata_is_what_tools_accept(info, wheel):
    metadata = Metadata.from_email((info / "METADATA").read_text(), validate=True)
    assert [str(one) for one in metadata.requires_dist] == ["torch==2.11.*", 'pyarrow; extra == "tables"']
    assert str(metadata.version) == str(parse_wheel_filename(wheel.name)[1])
    assert metadata.description and metadata.description_content_type == "text/markdown"
    assert len(metadata.license_files) > 30
    for name in metadata.license_files:
        assert (info / "licenses" / name).stat().st_size > 0, name
    tags = email.message_from_string((info / "WHEEL").read_text())
    assert tags["Root-Is-Purelib"] == "false" and tags["Tag"] == wheel_name.wheel_tag()


def test_every_library_has_an_owner_and_a_licence(unpacked, info):
    listed = json.loads((info / "sboms/dapd.cdx.json").read_text())
    components = [listed["metadata"]["component"], *listed["components"]]
    files = {file["name"]: file["hashes"][0]["content"] for component in components for file in component.get("components", [])}
    root = unpacked / "dapd"
    assert set(files) == {str(path.relative_to(root)) for folder in ("bin", "lib", "libexec") for path in (root / folder).iterdir()}
    assert all(hashlib.sha256((root / name).read_bytes()).hexdigest() == digest for name, digest in files.items())
    for part in listed["components"]:
        folder = info / "licenses/licences" / f"{part['name']}-{part['version']}".replace(":", "_")
        assert sum(path.stat().st_size for path in folder.rglob("*")) > 100, part["name"]
    names = {part["name"] for part in listed["components"]}
    print(f"{len(names)} parts, {len(files)} files")
    assert {"pyarrow", "libgrpc29", "nlohmann-json3-dev"} <= names and not names & {"torch", "libc6", "libstdc++6"}


def needed(path):
    dynamic = subprocess.run(["readelf", "--dynamic", path], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)), re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic)


def test_what_it_loads_is_in_it_or_torchs_or_any_linuxs(unpacked):
    root = unpacked / "dapd"
    libraries = {path.name for path in (root / "lib").iterdir()}
    assert not libraries & (OF_THE_MACHINE | OF_TORCH)
    for path in [*(root / "libexec").iterdir(), *(root / "lib").iterdir()]:
        names, places = needed(path)
        assert names <= libraries | OF_TORCH | OF_THE_MACHINE or path.name == "libdapd_cuda.so", path.name
        assert not [place for place in places if str(ROOT) in place or "site-packages" in place], path.name


def test_no_symbol_is_newer_than_the_tag_allows(unpacked):
    """Checks PEP 600: glibc's symbols are not newer than the tag's version, and the symbols of GCC's libraries are not newer than that glibc."""
    limits = {"GLIBC": tuple(map(int, wheel_name.glibc_version().split("."))), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}
    root = unpacked / "dapd"
    for path in [*(root / "libexec").iterdir(), *(root / "lib").iterdir()]:
        versions = subprocess.run(["readelf", "--version-info", "--wide", path], capture_output=True, text=True, check=True).stdout
        for family, version in set(re.findall(r"Name: (GLIBC|GLIBCXX|CXXABI|GCC)_([\d.]+)", versions)):
            assert tuple(map(int, version.split("."))) <= limits[family], f"{path.name} needs {family}_{version}"


def test_its_commands_are_those_of_the_build(wheel_environment):
    def said_by(*command):
        """Returns release, commit, flavour and kernels. The wheel made here has no CUDA backend, although the build may have this
        backend."""
        said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
        return re.sub(r"; GPU: .*", "", said).replace("flavour  cuda", "flavour  cpu")

    expected = said_by(ROOT / "build/bin/dapd")
    assert "kernels  CPU: " in expected
    for command in ([wheel_environment / "bin/dapd"], [wheel_environment / "bin/python", "-m", "dapd"]):
        assert said_by(*command) == expected
    for name in PROGRAMS[1:]:
        result = subprocess.run([wheel_environment / "bin" / name, "--help"], capture_output=True, text=True)
        assert result.returncode == 0 and name in result.stdout, result
    # The exit code and the output come through; the launchers add nothing.
    result = subprocess.run([wheel_environment / "bin/dapd", "check", "nowhere"], capture_output=True, text=True)
    assert result.returncode == 3 and result.stderr.startswith("dapd: nowhere is neither a file nor a configuration of"), result


def test_pip_finds_it_whole(wheel_environment):
    result = subprocess.run([wheel_environment / "bin/python", "-m", "pip", "check"], capture_output=True, text=True)
    assert "dapd" not in result.stdout, result.stdout


def test_pip_asks_for_the_torch_that_it_was_built_with(wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    result = subprocess.run([tmp_path / "venv/bin/pip", "install", "--no-index", "--disable-pip-version-check", wheel], capture_output=True, text=True)
    assert result.returncode == 1 and "No matching distribution found for torch==2.11.*" in result.stderr, result


@pytest.fixture
def alone(unpacked, tmp_path):
    """Makes a site-packages with the wheel and a copy of torch made of links, which the test may change."""
    place = tmp_path / "site-packages"
    shutil.copytree(unpacked, place, copy_function=os.link)
    for program in (place / "dapd/bin").iterdir():
        program.chmod(0o755)
    return place


def link_torch(place, without=(), version="2.11.0+cu130", cut=()):
    base = site_packages(VENV)
    (place / "torch/lib").mkdir(parents=True)
    if version:
        (place / "torch/version.py").write_text(f"from typing import Optional\n__version__ = '{version}'\n")
    for path in (base / "torch/lib").glob("*.so*"):
        if path.name in cut:
            with open(path, "rb") as file:
                (place / "torch/lib" / path.name).write_bytes(file.read(cut[path.name]))
        elif path.name not in without:
            os.link(path.resolve(), place / "torch/lib" / path.name)
    for path in (base / "nvidia").glob("*/lib/*.so*"):
        if path.name not in without:
            target = place / "nvidia" / path.relative_to(base / "nvidia")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path.resolve())


LACKING = ": cannot open shared object file: No such file or directory"
AGAIN = "pip install --force-reinstall 'torch==2.11.*'"


@pytest.mark.parametrize("torch, said", [
    (None, "torch is missing: the libraries of torch 2.11 are not in {0}/torch; pip install 'torch==2.11.*'"),
    ({"version": "2.10.1+cpu"}, "{0}/torch is torch 2.10.1+cpu, and this package was built for torch 2.11; pip install 'torch==2.11.*'"),
    ({"version": "2.110.0"}, "{0}/torch is torch 2.110.0, and this package was built for torch 2.11; pip install 'torch==2.11.*'"),
    ({"version": None}, "{0}/torch is only half installed: it has no version.py; " + AGAIN),
    ({"without": ("libtorch_cpu.so",)}, "{0}/torch is only half installed: libtorch_cpu.so" + LACKING + "; " + AGAIN),
    ({"cut": {"libtorch_cpu.so": 0}}, "{0}/torch is only half installed: {0}/torch/lib/libtorch_cpu.so is cut off; " + AGAIN),
    ({"cut": {"libc10.so": 5000}}, "{0}/torch is only half installed: {0}/torch/lib/libc10.so is cut off; " + AGAIN),
    ({"cut": {"libtorch_cpu.so": 200_000_000}}, "{0}/torch is only half installed: {0}/torch/lib/libtorch_cpu.so is cut off; " + AGAIN),
], ids=["missing", "older", "newer", "no version", "no library", "empty library", "cut library", "cut half way"])
def test_a_torch_that_does_not_do_is_named_in_one_line(torch, said, alone):
    if torch is not None:
        link_torch(alone, **torch)
    for program in ("dapd", "dapd-trainer"):
        result = subprocess.run([alone / "dapd/bin" / program, "--version"], capture_output=True, text=True)
        assert result.returncode == 3 and result.stdout == "" and result.stderr == f"{program}: {said.format(alone)}\n", result
    # Tests the command on PATH and the module; the interpreter has this torch or none.
    bare = [sys.executable, "-S", "-c"]
    result = subprocess.run([*bare, "from dapd.programs import dapd; dapd()", "--version"], capture_output=True, text=True, env={"PYTHONPATH": str(alone)})
    assert result.returncode == 3 and result.stderr == f"dapd: {said.format(alone)}\n", result
    code = "import dapd\ntry: dapd.call('--version')\nexcept dapd.ConfigurationError as error: print(error)"
    result = subprocess.run([*bare, code], capture_output=True, text=True, env={"PYTHONPATH": str(alone)})
    assert result.stdout == f"{said.format(alone)}\n", result


def test_a_cpu_build_of_torch_does_as_well(alone):
    """Only the files differ: CUDA's files are missing. A CPU build's libtorch_cpu.so needs no CUPTI, but this libtorch_cpu.so does, so
    CUPTI stays."""
    cuda = [path.name for path in (site_packages(VENV) / "torch/lib").glob("*cuda*")]
    others = [path.name for path in (site_packages(VENV) / "nvidia").glob("*/lib/*.so*") if not path.name.startswith(("libcupti.", "libcudart."))]
    link_torch(alone, without=[*cuda, *others], version="2.11.3+cpu")
    result = subprocess.run([alone / "dapd/bin/dapd", "--version"], capture_output=True, text=True)
    assert result.returncode == 0 and result.stdout.splitlines()[3].startswith("kernels  CPU: "), result


def test_its_cuda_backend_loads_beside_a_cuda_build_of_torch(wheel_environment, tmp_path):
    """Tests as much as a machine without a GPU can, with the folders that the launcher gives the programs."""
    root = site_packages(wheel_environment)
    backend = root / "dapd/lib/libdapd_cuda.so"
    if not backend.exists():
        pytest.skip("this build has no CUDA backend")
    (tmp_path / "load.c").write_text('#include <dlfcn.h>\nint main(int count, char** paths) { return !dlopen(paths[1], RTLD_NOW); }')
    subprocess.run(["gcc", tmp_path / "load.c", "-o", tmp_path / "load"], check=True)
    folders = [root / "dapd/lib", root / "torch/lib", *root.glob("nvidia/*/lib")]
    loader = ["/lib64/ld-linux-x86-64.so.2", "--library-path", ":".join(map(str, folders))]
    assert subprocess.run([*loader, tmp_path / "load", backend]).returncode == 0
    without_cuda = [loader[0], "--inhibit-cache", "--library-path", str(folders[0])]
    assert subprocess.run([*without_cuda, tmp_path / "load", backend]).returncode == 1


def test_a_torch_elsewhere_is_found_by_the_interpreter(wheel, tmp_path):
    """A virtual environment that sees the system's packages has such a torch."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    subprocess.run([sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--no-compile", "--disable-pip-version-check", "--target",
                    site_packages(tmp_path / "venv"), wheel], check=True, capture_output=True)
    code = "from dapd.programs import dapd; dapd()"
    elsewhere = {**os.environ, "PYTHONPATH": str(site_packages(VENV))}
    result = subprocess.run([tmp_path / "venv/bin/python", "-c", code, "--version"], capture_output=True, text=True, env=elsewhere)
    assert result.returncode == 0, result
    result = subprocess.run([tmp_path / "venv/bin/python", "-c", code, "--version"], capture_output=True, text=True)
    assert result.returncode == 3 and result.stderr.startswith("dapd: torch is missing") and result.stderr.count("\n") == 1, result


def test_an_environment_whose_path_cannot_name_libraries_is_refused(alone, tmp_path):
    (tmp_path / "a:b").mkdir()
    alone.rename(tmp_path / "a:b/site-packages")
    result = subprocess.run([tmp_path / "a:b/site-packages/dapd/bin/dapd", "--version"], capture_output=True, text=True)
    assert result.returncode == 3 and "move the environment" in result.stderr and result.stderr.count("\n") == 1, result


@pytest.fixture(scope="module", params=("bookworm", "trixie"))
def bare(request, wheel, tmp_path_factory):
    """Makes a Debian with Python and without a compiler, and in it an environment into which pip has installed the wheel."""
    skip_without_debootstrap()
    folder = tmp_path_factory.mktemp(request.param)
    root = debian_root({"python3", "python3-venv"}, request.param)
    bare = BareDebian(root, folder, shown=site_packages(VENV).resolve())
    shutil.copy(wheel, folder)
    assert bare.run("sh", "-c", "command -v cc gcc g++ clang", check=False).returncode != 0
    bare.run("python3", "-m", "venv", "/srv/venv")
    # torch's files are as its wheel has them; pip sees it and its requirements as installed.
    own = "/srv/venv/lib/python3.*/site-packages"
    bare.run("sh", "-c", f"cd {own} && for path in /mnt/*; do [ -e ${{path##*/}} ] || ln -s $path; done")
    bare.run("/srv/venv/bin/pip", "install", "--no-index", "--no-compile", "--disable-pip-version-check", f"/srv/{wheel.name}")
    yield bare
    shutil.rmtree(folder)


def test_a_run_on_a_bare_debian_is_the_run_of_the_build(bare, wheel_environment, tmp_path):
    """After `pip install`, `dapd run` gives the adapter of the machine that compiled the programs."""
    assert bare.run("/srv/venv/bin/dapd", "--version").stdout.splitlines()[2].startswith("flavour  ")
    bare.run("/srv/venv/bin/python", "-m", "dapd.demonstrate", "/srv/demonstration")
    settings = [part for setting in ("trainer.steps=2", "trainer.schedule_steps=2", "evaluation.samples=1", "run.name=bare")
                for part in ("--set", setting)]
    bare.run("/srv/venv/bin/dapd", "run", "/srv/demonstration/laboratory.yaml", *settings)
    subprocess.run([wheel_environment / "bin/python", "-m", "dapd.demonstrate", tmp_path / "here"], check=True, capture_output=True)
    subprocess.run([wheel_environment / "bin/dapd", "run", tmp_path / "here/laboratory.yaml", *settings], check=True, capture_output=True, timeout=300)
    adapter = "runs/bare/adapter/adapter_model.safetensors"
    assert (bare.folder / "demonstration" / adapter).read_bytes() == (tmp_path / "here" / adapter).read_bytes()


def test_the_module_trains_on_a_bare_debian(bare):
    (bare.folder / "train.py").write_text("""
import dapd
run = dapd.run(dapd.make_demonstration("/srv/module"), set={"trainer.steps": 1, "trainer.schedule_steps": 1, "evaluation.samples": 1})
print(run.wait().state, run.progress.step, run.adapter)
""")
    said = bare.run("/srv/venv/bin/python", "/srv/train.py").stdout
    assert said == "finished 1 /srv/module/runs/laboratory/adapter\n"


def test_without_torch_a_bare_debian_is_told_so(bare):
    bare.run("python3", "-m", "venv", "/srv/without")
    wheel = next(bare.folder.glob("*.whl")).name
    bare.run("/srv/without/bin/pip", "install", "--no-index", "--no-deps", "--no-compile", "--disable-pip-version-check", f"/srv/{wheel}")
    result = bare.run("/srv/without/bin/dapd", "--version", check=False)
    assert result.returncode == 3 and result.stderr.startswith("dapd: torch is missing") and result.stderr.count("\n") == 1, result


def test_a_torch_whose_cuda_libraries_are_missing_is_half_installed(bare):
    """This is a CUDA build of torch without the NVIDIA packages that it requires. This machine itself may have their libraries."""
    bare.run("sh", "-c", "mkdir -p /srv/half/torch/lib && ln -s /mnt/torch/version.py /srv/half/torch && ln -s /mnt/torch/lib/*.so* /srv/half/torch/lib")
    program = "/srv/venv/lib/python3*/site-packages/dapd/bin/dapd"
    result = bare.run("sh", "-c", f"DAPD_TORCH=/srv/half/torch {program} --version", check=False)
    assert result.returncode == 3 and re.fullmatch(
        r"dapd: /srv/half/torch is only half installed: lib\w+\.so\.13" + LACKING + "; " + re.escape(AGAIN) + "\n", result.stderr), result

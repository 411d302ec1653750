"""Makes releases with deploy/release.sh twice, moves them, and runs them on bare Debians that have nothing of the build machine."""

import fcntl
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time

import pytest

from bare_debian import BareDebian, skip_without_debootstrap
from debian_root import debian_root

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("DAPD_BIN", ROOT / "build" / "bin"))
sys.path.insert(0, str(ROOT / "deploy/release"))
import claims  # noqa: E402
import lock  # noqa: E402
import normalize_image  # noqa: E402
import parts  # noqa: E402

# These have glibc 2.31, 2.36 (as the build has) and 2.41.
DEBIANS = ("bullseye", "bookworm", "trixie")
TINY = ("--set", "model.path={0}/demo/tiny-qwen3", "--set", "data.path={0}/demo/train.jsonl", "--set", "trainer.steps=2", "--set", "run.name=tiny")


def sha256(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def make(folder, package, **environment):
    """Runs deploy/release.sh and returns the one tarball that it makes."""
    subprocess.run([ROOT / "deploy/release.sh", "--unlocked", "--installed", package, "--output", folder], check=True, capture_output=True,
                   env={**os.environ, **environment}, timeout=540)
    (tarball,) = folder.glob("*.tar.gz")
    assert (folder / "SHA256SUMS").read_text() == f"{sha256(tarball)}  {tarball.name}\n"
    return tarball


def install(folder):
    subprocess.run([ROOT / "deploy/package.sh", folder], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def tarball(tmp_path_factory, quick_gzip):
    folder = tmp_path_factory.mktemp("release")
    yield make(folder / "dist", install(folder / "package"), PATH=quick_gzip)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def unpacked(tarball, tmp_path_factory):
    """Unpacks it in another folder whose name has a blank."""
    folder = tmp_path_factory.mktemp("moved") / "a folder"
    folder.mkdir()
    subprocess.run(["tar", "--extract", "--file", tarball, "--strip-components=1", "--directory", folder], check=True)
    yield folder
    shutil.rmtree(folder.parent)


def test_made_again_it_has_the_same_bytes(tarball, quick_gzip, tmp_path):
    old = os.umask(0o077)
    try:
        again = make(tmp_path / "elsewhere", install(tmp_path / "package again"), PATH=quick_gzip, TZ="Asia/Tokyo", LC_ALL="C.UTF-8",
                     TMPDIR=str(tmp_path))
    finally:
        os.umask(old)
    print(f"{tarball.name}: {tarball.stat().st_size / 2**20:.0f} MiB")
    assert again.name == tarball.name and sha256(again) == sha256(tarball)


def test_programs_that_name_no_folder_of_this_machine_find_their_libraries(tmp_path):
    """The programs are linked as for a release. The build's programs name the folders of the wheels, so they cannot show whether `cmake
    --install` finds the libraries there."""
    (tmp_path / "build/bin").mkdir(parents=True)
    for name in ("dapd", "dapd-rollout", "dapd-teacher", "dapd-trainer"):
        dynamic = subprocess.run(["readelf", "--dynamic", BIN / name], capture_output=True, text=True, check=True).stdout
        named = re.search(r"R(?:UN)?PATH.*\[(.*)\]", dynamic)[1].encode()
        program = (BIN / name).read_bytes()
        assert b"site-packages" in named and program.count(named + b"\0") == 1
        (tmp_path / "build/bin" / name).write_bytes(program.replace(named, b"$ORIGIN/../lib".ljust(len(named), b"\0")))
    script = (BIN.parent / "cmake_install.cmake").read_text().replace(f"{BIN}/", f"{tmp_path}/build/bin/")
    (tmp_path / "install.cmake").write_text(script)
    subprocess.run(["cmake", f"-DCMAKE_INSTALL_PREFIX={tmp_path}/package", "-DCMAKE_INSTALL_COMPONENT=programs", "-P", tmp_path / "install.cmake"], check=True)
    libraries = {path.name.split(".so")[0] for path in (tmp_path / "package/lib").iterdir()}
    assert {"libtorch_cpu", "libc10", "libarrow", "libparquet", "libgomp"} <= libraries


def test_nothing_in_it_tells_of_who_made_it(tarball):
    epoch = int(subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    for member in tarfile.open(tarball):
        assert (member.uid, member.gid, member.uname, member.gname, member.mtime) == (0, 0, "", "", epoch), member.name
        assert not member.mode & 0o7022 and member.mode & 0o444 == 0o444, member.name


def test_its_programs_look_for_libraries_beside_them_only(unpacked):
    for program in (unpacked / "libexec").iterdir():
        dynamic = subprocess.run(["readelf", "--dynamic", program], capture_output=True, text=True, check=True).stdout
        assert re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic) == ["$ORIGIN/../lib"], program


def test_every_library_has_an_owner_and_a_licence(unpacked):
    listed = json.loads((unpacked / "parts.cdx.json").read_text())
    components = [listed["metadata"]["component"], *listed["components"]]
    files = {file["name"]: file["hashes"][0]["content"] for component in components for file in component.get("components", [])}
    present = {str(path.relative_to(unpacked)) for folder in ("bin", "lib", "libexec") for path in (unpacked / folder).rglob("*") if path.is_file()}
    assert set(files) == present
    assert all(sha256(unpacked / name) == digest for name, digest in files.items())
    for part in listed["components"]:
        folder = unpacked / "licences" / f"{part['name']}-{part['version']}".replace(":", "_")
        assert sum(path.stat().st_size for path in folder.rglob("*")) > 100, part["name"]
        assert part["purl"].startswith(("pkg:deb/debian/", "pkg:pypi/")) and part["licenses"]
    print(f"{len(listed['components'])} parts, {len(files)} files")
    assert {"torch", "pyarrow", "libgrpc29", "libc6", "nlohmann-json3-dev"} <= {part["name"] for part in listed["components"]}


def test_it_says_commit_flavour_and_kernels(unpacked, tarball):
    lines = subprocess.run([unpacked / "bin/dapd", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert tarball.name == f"dapd-{lines[0]}-linux-x86_64-cpu.tar.gz"
    assert lines[1].startswith("commit   ") and lines[2] == "flavour  cpu" and lines[3].startswith("kernels  CPU: ")


def test_a_link_to_a_program_finds_its_release(unpacked, tmp_path):
    (tmp_path / "my-dapd").symlink_to(unpacked / "bin/dapd")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert subprocess.run(["my-dapd", "--version"], env=environment, capture_output=True, check=True).stdout


def test_a_path_that_cannot_name_libraries_is_refused(unpacked, tmp_path):
    (tmp_path / "a:b/bin").mkdir(parents=True)
    shutil.copy(unpacked / "bin/dapd", tmp_path / "a:b/bin/dapd")
    result = subprocess.run([tmp_path / "a:b/bin/dapd", "--version"], capture_output=True, text=True)
    assert result.returncode == 1 and "a:b" in result.stderr and "move it" in result.stderr


def test_the_driver_is_found_where_a_container_says(unpacked, tmp_path):
    """Only LD_LIBRARY_PATH leads to the library: --nv and device plugins put libcuda.so.1 into such folders."""
    (tmp_path / "source.c").write_text('#include <dlfcn.h>\nint main(void) { return dlopen("libof-the-driver.so.1", RTLD_NOW) ? 0 : 3; }')
    (tmp_path / "libexec").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "driver").mkdir()
    (tmp_path / "lib").symlink_to(unpacked / "lib")
    shutil.copy(unpacked / "bin/dapd", tmp_path / "bin/probe")
    subprocess.run(["gcc", tmp_path / "source.c", "-o", tmp_path / "libexec/probe"], check=True)
    subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", tmp_path / "driver/libof-the-driver.so.1"], check=True)
    assert subprocess.run([tmp_path / "bin/probe"]).returncode == 3
    assert subprocess.run([tmp_path / "bin/probe"], env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path / "driver")}).returncode == 0


def test_helpers_run_in_the_python_that_lies_in_the_folder(unpacked, tmp_path):
    python = unpacked / ".deps/venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\necho called >{tmp_path}/called\nexit 1\n")
    python.chmod(0o755)
    result = subprocess.run([unpacked / "bin/dapd", "restore", "s3://bucket/run", tmp_path / "run"], capture_output=True, timeout=120)
    shutil.rmtree(unpacked / ".deps")
    assert result.returncode != 0 and (tmp_path / "called").exists()


@pytest.fixture(scope="module", params=DEBIANS)
def bare(request, tarball, tmp_path_factory):
    skip_without_debootstrap()
    folder = tmp_path_factory.mktemp(request.param)
    bare = BareDebian(debian_root(set(), request.param), folder)
    shutil.copy(tarball, folder / "release.tar.gz")
    (folder / "release").mkdir()
    # The programs of that Debian unpack the release.
    bare.run("tar", "--extract", "--gzip", "--file", "/srv/release.tar.gz", "--strip-components=1", "--directory", "/srv/release")
    yield bare
    shutil.rmtree(folder)


def test_it_takes_the_newer_c_library(bare, unpacked):
    """`cat` of the build's machine, started by the launcher, shows the C library that it was loaded with."""
    shutil.copy(shutil.which("cat"), bare.folder / "release/libexec/probe")
    shutil.copy(bare.folder / "release/bin/dapd", bare.folder / "release/bin/probe")
    maps = bare.run("/srv/release/bin/probe", "/proc/self/maps").stdout
    machine = bare.run("getconf", "GNU_LIBC_VERSION").stdout.split()[1]
    own = re.search(r"needed=(\S+)", (unpacked / "bin/dapd").read_text())[1]
    is_older = [int(part) for part in machine.split(".")] < [int(part) for part in own.split(".")]
    (library,) = set(re.findall(r"(/\S*/libc\.so\.6|/\S*/libc-2\.\d+\.so)", maps))
    print(f"glibc {machine} here, {own} in the release: {library}")
    assert library.startswith("/srv/release/lib/glibc/") == is_older


def test_a_run_on_a_bare_debian_is_the_run_of_the_build(bare, unpacked, tmp_path):
    """`dapd run` starts the three services by their launchers; the adapter equals the adapter of the build machine."""
    bare.run("/srv/release/bin/dapd", "check", "/srv/release/configs/container.yaml", *(part.format("/srv/release") for part in TINY))
    start = time.monotonic()
    bare.run("/srv/release/bin/dapd", "run", "/srv/release/configs/container.yaml", "--set", "run.output_dir=/srv/runs",
             *(part.format("/srv/release") for part in TINY))
    print(f"{time.monotonic() - start:.1f} s for two steps")
    subprocess.run([unpacked / "bin/dapd", "run", unpacked / "configs/container.yaml", "--set", f"run.output_dir={tmp_path}",
                    *(part.format(unpacked) for part in TINY)], check=True, capture_output=True, timeout=300)
    name = "tiny/adapter/adapter_model.safetensors"
    assert sha256(bare.folder / "runs" / name) == sha256(tmp_path / name)


@pytest.mark.parametrize("processor", ["Haswell-noTSX", "Nehalem"])
def test_a_run_ends_on_an_older_processor(processor, unpacked, tmp_path):
    """Launchers start an emulator of a processor with AVX2 at most, and of a processor without AVX
    (tests/integration/test_old_processors.py)."""
    release = tmp_path / "release"
    shutil.copytree(unpacked, release, copy_function=os.link)
    for launcher in (release / "bin").iterdir():
        text = launcher.read_text()
        assert text.count('exec "$loader"') == 1
        launcher.unlink()
        launcher.write_text(text.replace('exec "$loader"', f'exec qemu-x86_64 -cpu {processor} "$loader"'))
        launcher.chmod(0o755)
    settings = (*(part.format(release) for part in TINY), "--set", "trainer.batch_size=2", "--set", "rollout.max_new_tokens=8")
    start = time.monotonic()
    result = subprocess.run([release / "bin/dapd", "run", release / "configs/container.yaml", "--set", f"run.output_dir={tmp_path}", *settings],
                            capture_output=True, text=True, timeout=500, env={**os.environ, "OMP_NUM_THREADS": "1"})
    print(f"{processor}: {time.monotonic() - start:.1f} s for two steps")
    assert result.returncode == 0, result.stderr[-3000:]
    assert len((tmp_path / "tiny/metrics.jsonl").read_text().splitlines()) == 2


def recipe_sections(text):
    """Maps each %name to the lines below it."""
    found = re.split(r"^%(\w+)[^\n]*\n", text, flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def test_the_apptainer_recipe_does_in_a_debian_what_it_says(tarball, tmp_path):
    """Runs the recipe's steps in their order on a base of debootstrap; Apptainer itself is in no registry that tests may use."""
    skip_without_debootstrap()
    text = (ROOT / "deploy/apptainer.def").read_text()
    arguments = dict(line.strip().split("=", 1) for line in recipe_sections(text)["arguments"].splitlines() if line.strip())
    assert arguments.keys() == set(re.findall(r"{{ *(\w+) *}}", text))
    sections = recipe_sections(re.sub(r"{{ *(\w+) *}}", lambda found: {**arguments, "TARBALL": str(tarball)}[found[1]], text))
    base = debian_root({"ca-certificates"})
    source, target = sections["files"].split()
    # The overlay keeps the base unchanged for the next test.
    script = f"""set -eu
        mount -t tmpfs tmpfs {tmp_path} && mkdir {tmp_path}/up {tmp_path}/work {tmp_path}/root
        mount -t overlay overlay -o lowerdir={base},upperdir={tmp_path}/up,workdir={tmp_path}/work {tmp_path}/root
        mkdir -p {tmp_path}/root/proc && mount -t proc proc {tmp_path}/root/proc && cp {source} {tmp_path}/root{target}
        for step in "$1" "$2
        $3" "$2
        set -- --version
        $4"; do chroot {tmp_path}/root /bin/sh -eu -c "$step"; done"""
    steps = [sections[name] for name in ("post", "environment", "test", "runscript")]
    result = subprocess.run(["unshare", "--mount", "--pid", "--fork", "sh", "-c", script, "sh", *steps], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-3000:]
    assert "the configuration is sound" in result.stdout and "flavour  cpu" in result.stdout.splitlines()[-2]


def saved_image(path, layer_time, host):
    """Makes a small file like a file of `docker save`: one layer with a file, a link to it, and folders in another order."""

    def tar(members):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for entry, data in members:
                archive.addfile(entry, io.BytesIO(data))
        return stream.getvalue()

    def entry(name, data=b"", **fields):
        made = tarfile.TarInfo(name)
        made.size, made.mtime, made.mode = len(data), layer_time, 0o755
        for field, value in fields.items():
            setattr(made, field, value)
        return made, data

    program = entry("opt/program", b"text", uid=10001)
    link = entry("opt/a-link", type=tarfile.LNKTYPE, linkname="opt/program")
    others = [entry("opt", type=tarfile.DIRTYPE), entry("opt/z", type=tarfile.DIRTYPE)]
    layer = tar([*others[::layer_time % 2 * 2 - 1], program, link])
    config = {"architecture": "amd64", "os": "linux", "config": {"User": "10001:10001", "Hostname": host}, "created": str(layer_time),
              "container": host, "history": [{"created": str(layer_time)}], "rootfs": {"type": "layers", "diff_ids": ["sha256:0"]}}
    manifest = [{"Config": f"{host}.json", "RepoTags": ["dapd:cpu"], "Layers": [f"{host}/layer.tar"]}]
    path.write_bytes(tar([entry(f"{host}/layer.tar", layer), entry(f"{host}.json", json.dumps(config).encode()),
                          entry("manifest.json", json.dumps(manifest).encode())]))
    return path


def test_an_image_says_nothing_of_when_and_where_it_was_built(tmp_path):
    images = [io.BytesIO(), io.BytesIO()]
    for number, image in enumerate(images):
        normalize_image.normalize(saved_image(tmp_path / f"{number}.tar", 1000 + number, f"host{number}"), image, 1700000000)
    assert images[0].getvalue() == images[1].getvalue()
    images[0].seek(0)
    archive = tarfile.open(fileobj=images[0])
    (manifest,) = json.load(archive.extractfile("manifest.json"))
    config = json.load(archive.extractfile(manifest["Config"]))
    layer = archive.extractfile(manifest["Layers"][0]).read()
    assert config["config"] == {"User": "10001:10001"} and config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    files = {member.name: member for member in tarfile.open(fileobj=io.BytesIO(layer))}
    assert list(files) == ["opt", "opt/program", "opt/z", "opt/a-link"] and files["opt/a-link"].islnk()
    assert files["opt/program"].uid == 10001 and files["opt/program"].mtime == 1700000000


def test_other_packages_than_the_locked_ones_are_named(tmp_path):
    file = tmp_path / "lock"
    lock.update(file, {"libone": "1.0", "libtwo": "2:3.4-5"})
    assert lock.read(file) == {"libone": "1.0", "libtwo": "2:3.4-5"}
    assert lock.differences({"libone": "1.0", "libtwo": "2:3.4-6", "libthree": "1"}, lock.read(file)) == \
        ["libthree 1, locked: not named", "libtwo 2:3.4-6, locked: 2:3.4-5"]
    lock.update(file, {"libtwo": "2:3.4-6"})
    assert lock.read(file) == {"libone": "1.0", "libtwo": "2:3.4-6"}


# deploy/install.sh installs these, but they add no bytes to a release. build-essential's parts are named one by one.
NO_BYTES = {"build-essential", "ca-certificates", "ccache", "openssl", "pkg-config", "python3", "python3-venv"}


def test_the_lock_names_what_a_build_is_installed_with():
    """If install.sh gained a package that the lock lacks, builds would differ between machines unnoticed."""
    script = (ROOT / "deploy/install.sh").read_text()
    installed = set(re.search(r"^packages=\(\n(.*?)^\)", script, re.MULTILINE | re.DOTALL)[1].split())
    assert {"cmake", "libgrpc++-dev", "zlib1g-dev"} <= installed
    named = {*lock.TOOLS, *parts.COMPILED_IN}
    assert installed - NO_BYTES <= named, installed - NO_BYTES - named
    locked = lock.read(ROOT / "deploy/release/debian.lock")
    assert named <= locked.keys(), named - locked.keys()
    assert "none" not in locked.values()


def test_the_lock_names_what_the_programs_load():
    """Checks this build's programs, whatever the versions on this machine: deploy/release.sh refuses libraries that the lock does not
    name."""
    programs = [program for name in ("dapd", "dapd-rollout", "dapd-teacher", "dapd-trainer") if (program := BIN / name).exists()]
    if not programs:
        pytest.skip(f"{BIN} has no programs")
    (site_packages,) = (ROOT / ".deps/venv/lib").glob("python3*/site-packages")
    libraries = parts.system_libraries(programs, [site_packages.resolve(), (BIN.parent / "lib").resolve()])
    packages = set(parts.owners(libraries.values()).values())
    assert "libgrpc29" in packages
    assert packages <= lock.read(ROOT / "deploy/release/debian.lock").keys()


def test_a_library_of_nobody_is_refused(tmp_path):
    (tmp_path / "libnobody.so").write_text("")
    with pytest.raises(parts.Unknown, match="libnobody.so"):
        parts.owners([str(tmp_path / "libnobody.so")])


def test_every_wheel_with_libraries_brings_a_licence():
    """CUDA's wheels are included, although these tests' tarball has none; some keep the licence in another place."""
    (site_packages,) = (ROOT / ".deps/venv/lib").glob("python3*/site-packages")
    names = [name for file in ("requirements.txt", "requirements-cuda.txt") for name in parts.wheel_names(ROOT / "deploy" / file)]
    found = [parts.wheel_part(distribution) for distribution, libraries in parts.wheels(names, site_packages) if libraries]
    assert {"torch", "pyarrow", "nvidia-cublas", "nvidia-cusparselt-cu13"} <= {part.name for part in found}
    assert all(file.stat().st_size > 100 for part in found for file in part.licence_files)


def test_kernels_of_others_are_a_part_with_their_licences(tmp_path, monkeypatch):
    """FlashAttention-3 and CUTLASS are compiled into the CUDA backend; a backend without them names nobody."""
    deps = tmp_path / ".deps/flash-attention-3/licences"
    deps.mkdir(parents=True)
    for name in ("cutlass.txt", "xformers.txt"):
        (deps / name).write_text("BSD 3-Clause License")
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    backend = tmp_path / "lib/libdapd_cuda.so"
    backend.parent.mkdir()
    found = []
    for symbols in (b"DapdCudaSample", b"DapdCudaSample DapdCudaFlashAttention3Forward"):
        backend.write_bytes(symbols)
        kept = claims.Claims()
        claims.claim_kernels(kept, tmp_path)
        found.append(kept.sorted())
    assert found[0] == []
    (part,) = found[1]
    assert (part.name, part.version, part.kind, part.licence) == ("xformers", "0.0.34", "pypi", "BSD-3-Clause")
    assert [file.name for file in part.licence_files] == ["cutlass.txt", "xformers.txt", "flash-attention.txt"]
    assert "as shown by the AUTHORS file" in part.licence_files[-1].read_text()


def test_a_release_is_made_of_a_commit(tmp_path):
    """An edited checkout gives no release, with any arguments."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    (clone / ".deps").symlink_to(ROOT / ".deps")
    (clone / "README.md").write_text("edited")
    result = subprocess.run([clone / "deploy/release.sh", "cpu"], capture_output=True, text=True)
    assert result.returncode == 1 and "a release is made from a commit" in result.stderr


def test_a_folder_takes_one_release_at_a_time(tmp_path):
    """Two releases at once would write the same temporary tarball, and the checksums of only one release."""
    logs = tmp_path / "dist/logs"
    logs.mkdir(parents=True)
    with open(logs / "lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        result = subprocess.run([ROOT / "deploy/release.sh", "--unlocked", "--installed", tmp_path, "--output", tmp_path / "dist"],
                                capture_output=True, text=True)
    assert result.returncode == 1 and f"{logs}/lock: another release is being made there" in result.stderr
    assert [path.name for path in (tmp_path / "dist").iterdir()] == ["logs"] and [path.name for path in logs.iterdir()] == ["lock"]

"""Fixtures that several files share: an engine, and the image in it."""

import os
import shutil
import subprocess
import time

import pytest

from container_engine import ROOT, Engine, EngineUnavailable
from debian_root import debian_root, owning_packages, system_libraries
from wheel_environment import make_environment


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engine")
    try:
        engine = Engine(folder)
    except EngineUnavailable as reason:
        shutil.rmtree(folder)
        pytest.skip(str(reason))
    yield engine
    engine.stop()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def quick_gzip(tmp_path_factory):
    """Returns a PATH whose gzip takes a third of the time: no test checks how small the archives of deploy/release.sh are."""
    folder = tmp_path_factory.mktemp("quick-gzip")
    (folder / "gzip").write_text(f'#!/bin/sh\nexec {shutil.which("gzip")} -1 "$@"\n')
    (folder / "gzip").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    subprocess.run([ROOT / "deploy/package.sh", folder], check=True, capture_output=True)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def image(engine, package):
    """Returns dapd:cpu, built on a base that debootstrap made, with the programs of build/bin."""
    root = debian_root({"ca-certificates"} | owning_packages(system_libraries(package)))
    engine.import_root(root, "debian-root")
    start = time.monotonic()
    engine.run(ROOT / "deploy/build_image.sh", "--installed", package, "--base", "debian-root", "--tag", "dapd:cpu")
    mebibytes = int(engine.docker("image", "inspect", "--format", "{{.Size}}", "dapd:cpu").stdout) / 2**20
    print(f"dapd:cpu has {mebibytes:.0f} MiB, built in {time.monotonic() - start:.0f} s from compiled programs")
    assert mebibytes < 600
    return "dapd:cpu"


@pytest.fixture(scope="session")
def wheel(package, tmp_path_factory):
    """Returns the wheel that deploy/release.sh makes of the programs of build/bin."""
    folder = tmp_path_factory.mktemp("wheel")
    start = time.monotonic()
    subprocess.run([ROOT / "deploy/release.sh", "--unlocked", "--installed", package, "--output", folder, "wheel"], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB in {time.monotonic() - start:.0f} s")
    yield wheel
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def wheel_environment(wheel, tmp_path_factory):
    """Returns a virtual environment with the wheel, and with torch, pyarrow and all other packages of the tests' environment."""
    folder = tmp_path_factory.mktemp("environment")
    yield make_environment(folder / "venv", wheel, ROOT / ".deps/venv")
    shutil.rmtree(folder)

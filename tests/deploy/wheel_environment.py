"""Makes virtual environments with an installed wheel."""

import pathlib
import subprocess
import sys


def site_packages(venv):
    (found,) = pathlib.Path(venv, "lib").glob("python3*/site-packages")
    return found


def make_environment(venv, wheel, base, python=sys.executable):
    """Makes `venv` and installs `wheel` into it with pip, which finds torch installed: each package of the environment `base` is a link, so
    that the libraries that the wheel's programs load lie beside them, as pip would put them. Returns `venv`."""
    subprocess.run([python, "-m", "venv", "--without-pip", venv], check=True)
    own = site_packages(venv)
    for path in site_packages(base).iterdir():
        if path.name not in ("__pycache__", "distutils-precedence.pth"):
            (own / path.name).symlink_to(path.resolve())
    # The links lead to the pip of `base`.
    subprocess.run([venv / "bin/python", "-m", "pip", "install", "--no-index", "--no-compile", "--disable-pip-version-check", wheel], check=True,
                   capture_output=True, text=True)
    return venv

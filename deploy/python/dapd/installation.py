"""Finds the programs, configurations and the demonstration of this package, and its torch."""

import importlib.util
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent


def program(name: str) -> pathlib.Path:
    """Returns the launcher of a program: `dapd`, `dapd-rollout`, `dapd-teacher` or `dapd-trainer`."""
    return ROOT / "bin" / name


def torch_folder() -> pathlib.Path | None:
    """Returns the folder of the torch that this interpreter would import, without importing it. Returns None if there
    is none."""
    try:
        found = importlib.util.find_spec("torch")
    except (ImportError, ValueError):  # errors that a half-removed package may raise
        return None
    # A package without its __init__.py has locations but no origin.
    places = list(found.submodule_search_locations or []) if found else []
    return pathlib.Path(places[0]) if places else None


def environment() -> dict[str, str]:
    """Returns the environment of the programs: that of this process, with the torch of this interpreter and, first on
    PATH, this interpreter, which runs the helpers that are written in Python."""
    variables = dict(os.environ)
    torch = torch_folder()
    if torch is not None:
        variables["DAPD_TORCH"] = str(torch)
    own = os.path.dirname(sys.executable)
    others = variables.get("PATH", os.defpath)
    if own and others.split(os.pathsep)[0] != own:
        variables["PATH"] = os.pathsep.join([own, others])
    return variables


def config_names() -> list[str]:
    """Returns the names of the configurations that `dapd run NAME` and `dapd.run(NAME)` find."""
    return sorted(path.stem for path in (ROOT / "configs").glob("*.yaml"))


def config_path(name: str) -> pathlib.Path:
    """Returns the file of a configuration of this package: config_path("laboratory"), or in a folder,
    config_path("sweeps/seeds")."""
    path = ROOT / "configs" / f"{name.removesuffix('.yaml')}.yaml"
    if not path.is_file():
        raise FileNotFoundError(f"{name} is no configuration of this package, which has {', '.join(config_names())}")
    return path

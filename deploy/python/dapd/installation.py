"""Where the programs, configurations and the demonstration of this package lie, and where its torch is."""

import importlib.util
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent


def program(name: str) -> pathlib.Path:
    """The launcher of a program: `dapd`, `dapd-rollout`, `dapd-teacher` or `dapd-trainer`."""
    return ROOT / "bin" / name


def torch_folder() -> pathlib.Path | None:
    """The folder of the torch that this interpreter would import, which is not imported. None without one."""
    try:
        found = importlib.util.find_spec("torch")
    except (ImportError, ValueError):  # what a half-removed package may raise
        return None
    # Without its __init__.py a package has places and no origin.
    places = list(found.submodule_search_locations or []) if found else []
    return pathlib.Path(places[0]) if places else None


def environment() -> dict[str, str]:
    """What the programs are started with: this process' environment, and in it the torch of this interpreter and, first on PATH, this interpreter,
    which runs the helpers that are written in Python."""
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
    """The configurations that `dapd run NAME` and `dapd.run(NAME)` find by their names."""
    return sorted(path.stem for path in (ROOT / "configs").glob("*.yaml"))


def config_path(name: str) -> pathlib.Path:
    """The file of a configuration that this package brings: config_path("laboratory"), or of one in a folder, config_path("sweeps/seeds")."""
    path = ROOT / "configs" / f"{name.removesuffix('.yaml')}.yaml"
    if not path.is_file():
        raise FileNotFoundError(f"{name} is no configuration of this package, which has {', '.join(config_names())}")
    return path

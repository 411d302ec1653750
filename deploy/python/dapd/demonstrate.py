"""Makes the demonstration's folder, and prints what to do with it.

python -m dapd.demonstrate [FOLDER]     (default: demonstration)
"""

import sys

from dapd.demonstration import make_demonstration
from dapd.errors import CommandError


def main() -> None:
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit("usage: python -m dapd.demonstrate [FOLDER]")
    try:
        config = make_demonstration(*sys.argv[1:])
    except CommandError as error:
        print(f"dapd: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"dapd: {error}", file=sys.stderr)
        sys.exit(4)
    print(f"dapd run {config}        # trains and evaluates, 3 minutes on two cores")
    print(f"dapd compare {config.parent}/runs/laboratory")
    print(f"dapd answers {config.parent}/runs/laboratory")


if __name__ == "__main__":
    main()

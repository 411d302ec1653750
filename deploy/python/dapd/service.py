"""Asks a running trainer for its state over gRPC."""

import json
from typing import Any

from dapd.command import Settings, call, set_flags


def status(address: str, set: Settings | None = None) -> dict[str, Any]:
    """Returns what `dapd status ADDRESS --json` prints: step, phase, losses, workers, evaluations, with the names of
    GetStatusResponse.

    `address` is the trainer's host:port (trainer.listen). `set` takes the keys of the section `security`, for TLS
    and tokens; they may also come from the environment (DAPD_SECURITY__CERTIFICATE=...). Raises UnavailableError if
    no trainer answers there.
    """
    answer = json.loads(call("status", address, "--json", *set_flags(set)))
    assert isinstance(answer, dict)
    return answer

"""`python -m dapd` is the command `dapd`."""

from dapd.programs import dapd

dapd()

"""Makes the kernel refuse a system call to a process, as a file system or a container may: for `preexec_fn` of subprocess."""

import ctypes
import errno
import platform
import struct

NUMBERS = {"x86_64": {"flock": 73}, "aarch64": {"flock": 32}}[platform.machine()]
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000


def refuse(call, error):
    """Makes every later `call` of this process and its children fail with `error`."""
    program = b"".join(
        struct.pack("HBBI", *line)
        for line in [(LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 0, 1, NUMBERS[call]), (RETURN, 0, 0, REFUSE | error), (RETURN, 0, 0, ALLOW)]
    )
    code = ctypes.create_string_buffer(program, len(program))
    filter_ = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in [(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter_, 0, 0)]:
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def no_locks():
    refuse("flock", errno.ENOLCK)

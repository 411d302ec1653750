"""Makes a process wait at a failpoint until a test releases it (common/base/failpoint.h)."""


class Hold:
    """A file at which processes wait in the failpoints that name it, until it is released."""

    def __init__(self, path):
        self.path = path
        path.touch()

    def at(self, failpoint, hit):
        """Returns an entry for DAPD_FAILPOINTS: the process waits at the `hit`-th time."""
        return f"{failpoint}=hold:{self.path}@{hit}"

    def release(self):
        self.path.unlink(missing_ok=True)

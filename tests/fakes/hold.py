"""Where a process stands still until a test lets it go on (common/base/failpoint.h)."""


class Hold:
    """A file that keeps every process waiting at the failpoints that name it, until it is released."""

    def __init__(self, path):
        self.path = path
        path.touch()

    def at(self, failpoint, hit):
        """For DAPD_FAILPOINTS: it waits at the `hit`-th time."""
        return f"{failpoint}=hold:{self.path}@{hit}"

    def release(self):
        self.path.unlink(missing_ok=True)

"""The errors of the command `dapd` as exceptions: one class for each of its exit codes."""


class CommandError(RuntimeError):
    """The command ended with `exit_code` and the message `message`: no room on a disk or in memory, an internal error
    (1), or an end by a signal (128 plus the signal's number)."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code


class UsageError(CommandError):
    """An argument is wrong (2)."""


class ConfigurationError(CommandError):
    """A configuration, an installation or a permission is wrong (3). Correct it before you start again."""


class DataError(CommandError):
    """A model, an adapter or data cannot be used (4)."""


class UnavailableError(CommandError):
    """Another service cannot be reached, or another trainer holds the run (5)."""


class LostRunError(CommandError):
    """A run is corrupted or lost (6)."""


class RankLostError(CommandError):
    """A trainer rank or a GPU was lost (75). Start the run again, and it resumes."""


class StoppedError(CommandError):
    """The run was stopped before it was done (130)."""


CLASSES: dict[int, type[CommandError]] = {
    2: UsageError, 3: ConfigurationError, 4: DataError, 5: UnavailableError, 6: LostRunError, 75: RankLostError, 130: StoppedError}


def error_of(message: str, exit_code: int) -> CommandError:
    return CLASSES.get(exit_code, CommandError)(message, exit_code)

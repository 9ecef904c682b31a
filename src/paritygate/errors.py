"""Every way paritygate can stop, one class per cause, each with its exit code and a hint.

A failed comparison is a result, not an exception: it has a verdict and exit code 1 and does not
appear here.
"""

from enum import IntEnum

from paritygate.addresses import without_secrets

__all__ = [
    "ArtifactIntegrityError",
    "BackendError",
    "ChangedViewError",
    "ConversionError",
    "ExitCode",
    "InputFileError",
    "MeasurementError",
    "MissingBackendError",
    "MissingGpuError",
    "NotAvailableError",
    "NotRunHereError",
    "ParitygateError",
    "ReferenceRefusedError",
    "RepositoryError",
    "StorageError",
    "UnsupportedOperatorsError",
    "UsageError",
    "ZeroRowsError",
]


class ExitCode(IntEnum):
    """What the process returns to the shell, one code per cause (see docs/exit-codes.md)."""

    PASS = 0
    PARITY_FAILED = 1
    USAGE = 2
    INCONCLUSIVE = 3
    NOT_BUILT = 4
    NOT_MEASURED = 5
    INTERRUPTED = 130
    TERMINATED = 143


class ParitygateError(Exception):
    """Base of all errors with a message for the user.

    Attributes:
        exit_code: The process exit code of this cause.
        advice: What to do next, without the command; empty when there is nothing to add.
        command: The next command; empty where none, or more than one, may be next.
    """

    exit_code: ExitCode = ExitCode.NOT_MEASURED

    def __init__(self, message: str, *, hint: str = "", command: str = "") -> None:
        # Whatever fails, and wherever the message is printed or written.
        super().__init__(without_secrets(message))
        self.advice = without_secrets(hint)
        self.command = without_secrets(command)

    @property
    def hint(self) -> str:
        """What to do next, with the command; empty when there is nothing to add."""
        return ": ".join(filter(None, (self.advice, self.command)))

    @property
    def next_step(self) -> dict[str, str]:
        """Hint and command as arguments, for an error that says the same in other words."""
        return {"hint": self.advice, "command": self.command}

    def to_json(self) -> dict[str, str]:
        """Return it as JSON data."""
        return {"message": str(self), "hint": self.hint, "command": self.command}


class UsageError(ParitygateError, ValueError):
    """A flag, a spec or a value that is not allowed."""

    exit_code = ExitCode.USAGE


class ChangedViewError(UsageError):
    """What is there of a view on a model server would be lost: it was changed by hand, or asked for with more."""


class InputFileError(ParitygateError, OSError):
    """A file given by the user is missing, unreadable or corrupt."""

    exit_code = ExitCode.USAGE

    def __str__(self) -> str:
        return str(self.args[0])


class ConversionError(ParitygateError):
    """A converter failed, hung, crashed, or wrote something that does not load."""

    exit_code = ExitCode.NOT_BUILT


class NotAvailableError(ConversionError):
    """There is no such variant of this model: the format cannot hold it, or nothing of it computes in the precision."""


class UnsupportedOperatorsError(NotAvailableError):
    """The model uses operators that the target format does not have.

    Attributes:
        rows: One `(operator, node, reason, hint)` per unsupported node.
    """

    def __init__(
        self, message: str, *, rows: list[tuple[str, str, str, str]], hint: str = "", command: str = ""
    ) -> None:
        super().__init__(message, hint=hint, command=command)
        self.rows = rows


class MissingBackendError(ParitygateError, ImportError):
    """A runtime or converter that is needed is not installed."""


class NotRunHereError(ParitygateError):
    """This machine runs nothing of the kind: its processor does not compute in the precision, or it has no GPU."""


class MissingGpuError(MissingBackendError, NotRunHereError):
    """What is to be built is built on a GPU, and there is none."""


class BackendError(ParitygateError, RuntimeError):
    """A runtime refused a model or crashed."""


class MeasurementError(ParitygateError):
    """Something kept the comparison from being made."""


class ZeroRowsError(MeasurementError):
    """There is nothing to compare: no samples, or outputs without values."""


class ReferenceRefusedError(MeasurementError):
    """The reference is not fit to judge by: not finite, not repeatable, or constant."""


class NotAskedBeforeError(MeasurementError):
    """A model is not to be asked, and nothing is known of what it would answer."""


class ArtifactIntegrityError(MeasurementError):
    """Bytes on disk are not those that were recorded."""


class StorageError(MeasurementError, OSError):
    """The disk is full or a path cannot be written."""

    def __str__(self) -> str:
        return str(self.args[0])


class RepositoryError(MeasurementError):
    """The model repository is inconsistent, or lacks what was asked for."""

"""Define every way paritygate can stop, one class per cause, each with its exit code and a hint.

A failed comparison is a result with a verdict and exit code 1, not an exception.
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
    "LostWorkerError",
    "MeasurementError",
    "MissingBackendError",
    "MissingGpuError",
    "NotAvailableError",
    "NotRunHereError",
    "ParitygateError",
    "ReferenceRefusedError",
    "RepositoryError",
    "StorageError",
    "UnrepairedError",
    "UnsupportedOperatorsError",
    "UsageError",
    "ZeroRowsError",
]


class ExitCode(IntEnum):
    """The exit codes of the process, one per cause (see docs/exit-codes.md)."""

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

    `advice` is the next step without its `command`. Either is empty if there is none; the command also if several may
    be next.
    """

    exit_code: ExitCode = ExitCode.NOT_MEASURED
    status: int | None = None  # of the HTTP answer of a server, where it is the cause
    reason: str = ""  # why a server did not answer, where that is the cause; never in its own words

    def __init__(self, message: str, *, hint: str = "", command: str = "") -> None:
        # Here, so that no failure prints or writes a secret.
        super().__init__(without_secrets(message))
        self.advice = without_secrets(hint)
        self.command = without_secrets(command)

    @property
    def hint(self) -> str:
        """The next step with its command; empty if there is none."""
        return ": ".join(filter(None, (self.advice, self.command)))

    @property
    def next_step(self) -> dict[str, str]:
        """Hint and command as arguments of an error that replaces this one."""
        return {"hint": self.advice, "command": self.command}

    def to_json(self) -> dict[str, str]:
        """Return it as JSON data."""
        return {"message": str(self), "hint": self.hint, "command": self.command}


class UsageError(ParitygateError, ValueError):
    """A flag, a spec or a value that is not allowed."""

    exit_code = ExitCode.USAGE


class ChangedViewError(UsageError):
    """Writing a view for a model server would lose manual changes or options."""


class InputFileError(ParitygateError, OSError):
    """A file given by the user is missing, unreadable or corrupt."""

    exit_code = ExitCode.USAGE

    def __str__(self) -> str:
        return str(self.args[0])


class ConversionError(ParitygateError):
    """A converter failed, hung, crashed, or wrote something that does not load."""

    exit_code = ExitCode.NOT_BUILT


class NotAvailableError(ConversionError):
    """The variant is impossible: the format cannot hold the model, or none of it computes in the precision."""


class UnrepairedError(ConversionError):
    """No mixed precision was found that is within the limits and smaller or faster than FP32."""


class UnsupportedOperatorsError(NotAvailableError):
    """The model uses operators that the target format does not have.

    `rows` has one `(operator, node, reason, hint)` per unsupported node.
    """

    def __init__(
        self, message: str, *, rows: list[tuple[str, str, str, str]], hint: str = "", command: str = ""
    ) -> None:
        super().__init__(message, hint=hint, command=command)
        self.rows = rows


class MissingBackendError(ParitygateError, ImportError):
    """A runtime or converter that is needed is not installed."""


class NotRunHereError(ParitygateError):
    """This machine cannot run the model: its processor lacks the precision, or it has no GPU."""


class MissingGpuError(MissingBackendError, NotRunHereError):
    """The artifact is built on a GPU, and there is none."""


class BackendError(ParitygateError, RuntimeError):
    """A runtime refused a model or crashed."""


class LostWorkerError(BackendError):
    """A process that did a part of the work died without a result."""


class MeasurementError(ParitygateError):
    """Something prevented the comparison."""


class ZeroRowsError(MeasurementError):
    """There is nothing to compare: no samples, or outputs without values."""


class ReferenceRefusedError(MeasurementError):
    """The reference is no basis for a verdict: not finite, not repeatable, or constant."""


class CacheMissError(MeasurementError):
    """A model may not run, and its outputs are not known."""


class ArtifactIntegrityError(MeasurementError):
    """Bytes on disk differ from the recorded ones."""


class StorageError(MeasurementError, OSError):
    """The disk is full or a path cannot be written."""

    def __str__(self) -> str:
        return str(self.args[0])


class RepositoryError(MeasurementError):
    """The model repository is inconsistent, or lacks what was requested."""

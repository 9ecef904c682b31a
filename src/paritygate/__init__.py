"""Convert trained models, check that they still give the original's answers, and release only those that do.

The names in `__all__` are the Python API, see docs/python.md. They come from `paritygate.api` at their first use.
Importing this package imports nothing else, because `python -m paritygate` imports it before the current directory
leaves the path.

The parts of the product are the four linked packages `paritygate.convert`, `paritygate.validate`,
`paritygate.pipelines` and `paritygate.fixtures`. They use the modules beside this file.
"""

# Type checkers evaluate it as true.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from paritygate.api import (
        Batch,
        Comparison,
        Outcome,
        ParityError,
        ParitygateError,
        Plan,
        Release,
        ReleasedModel,
        Repository,
        Spec,
        compare,
        plan,
        run,
    )

__all__ = [
    "Batch",
    "Comparison",
    "Outcome",
    "ParityError",
    "ParitygateError",
    "Plan",
    "Release",
    "ReleasedModel",
    "Repository",
    "Spec",
    "__version__",
    "compare",
    "plan",
    "run",
]

__version__ = "0.3.0"


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import paritygate.api

    return getattr(paritygate.api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

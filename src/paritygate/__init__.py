"""Convert trained models, prove that they still answer like the original, release only those that do.

The names in `__all__` are the Python API, which docs/python.md describes. They are looked up in `paritygate.api` when
they are first used: importing this package imports nothing else, not even what Python brings along, because
`python -m paritygate` does so before it has taken the current directory off the path.

The parts of the product are the four linked packages `paritygate.convert`, `paritygate.validate`,
`paritygate.pipelines` and `paritygate.fixtures`; the modules beside this file are the ground floor they stand on.
"""

# What type checkers take for true.
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
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    import paritygate.api

    return getattr(paritygate.api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

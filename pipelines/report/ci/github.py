"""Annotations for GitHub jobs.

An annotation is a log line `::error title=TITLE::MESSAGE`. GitHub shows the first ten of a kind in a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from paritygate.pipelines.report.ci.cases import CaseStatus, Suite
from paritygate.text import printable

_MOST_SHOWN = 10
# Longer messages are cut, because log and summary have all of them.
_LONGEST = 1000
_KINDS = ("error", "warning", "notice")


class Annotation(Struct, frozen=True, kw_only=True):
    """An annotation of kind `error`, `warning` or `notice`."""

    kind: str
    title: str
    message: str


def annotations_of(suites: Iterable[Suite]) -> tuple[Annotation, ...]:
    """Return the annotations of suites: one error per failed required suite, with all its reasons.

    A warning or out-of-sample finding of a pass is a warning. Anything that decides nothing is a notice: a variant that
    is not required, an emulated row, or one that does not run here.
    """
    return tuple(annotation for suite in suites for annotation in _of_suite(suite))


def _of_suite(suite: Suite) -> list[Annotation]:
    title = f"{suite.model} {suite.name}: {suite.verdict}"
    bad = [case for case in suite.cases if case.status in {CaseStatus.FAILED, CaseStatus.ERROR}]
    items = []
    if bad:
        reasons = [f"{case.name}: {case.message}" for case in bad]
        details = list(dict.fromkeys(line for case in bad for line in case.details.splitlines()))
        items.append(Annotation(kind="error", title=title, message="\n".join((*reasons, *details))))
    elif suite.verdict != "pass":
        words = suite.reason if suite.is_required else f"{suite.reason} (not required)"
        items.append(Annotation(kind="notice", title=title, message=words))
    remarks = [f"{case.name}: {case.output}" for case in suite.cases if case.output]
    if remarks:
        kind = "warning" if suite.is_required else "notice"
        items.append(Annotation(kind=kind, title=f"{title}, with remarks", message="\n".join(remarks)))
    return items


def annotation_lines(annotations: Sequence[Annotation]) -> list[str]:
    """Return the lines of the log; beyond the limit of a kind, the last one counts the rest."""
    lines = []
    for kind in _KINDS:
        of_kind = [item for item in annotations if item.kind == kind]
        if len(of_kind) > _MOST_SHOWN:
            shown = of_kind[: _MOST_SHOWN - 1]
            left = len(of_kind) - len(shown)
            names = ", ".join(item.title for item in of_kind[len(shown) :])
            of_kind = [*shown, Annotation(kind=kind, title=f"{left} more of this kind", message=names)]
        lines += [_line(item) for item in of_kind]
    return lines


def _line(item: Annotation) -> str:
    message = printable(item.message)
    if len(message) > _LONGEST:
        message = message[: _LONGEST - 3] + "..."
    return f"::{item.kind} title={_property(printable(item.title))}::{_data(message)}"


def _data(text: str) -> str:
    """Return the message as the log needs it, because a line break would begin another command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")

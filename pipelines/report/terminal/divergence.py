"""Where a candidate parts from its reference, and which nodes two models share, within 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from paritygate.text import counted, echo, first_of, one_line
from paritygate.validate.divergence.graph_diff import GraphDiff, GraphNode
from paritygate.validate.divergence.result import CONTRACT, EQUAL, TRAIN_MODE, Divergence, Located, Minimal
from paritygate.validate.divergence.stages import STAGE

_WIDTH = 80
# Names in one line, and nodes in a list; the others are counted.
_NAMED, _LISTED = 3, 8


def print_divergence(divergence: Divergence, *, is_verbose: bool) -> None:
    """Print the places, most certain first; with `is_verbose`, how the error grows too."""
    for line in divergence_lines(divergence, is_verbose=is_verbose):
        echo(line)


def print_sides(*, compared_with: str, built_from: str) -> None:
    """Print the variants that are used in place of a source or an engine, to standard error."""
    lines = [f"The reference is {compared_with}, an export of the source."] if compared_with else []
    lines += [f"The candidate is {built_from}, which the engine was built from."] if built_from else []
    for line in lines:
        echo(line, err=True)


def divergence_lines(divergence: Divergence, *, is_verbose: bool) -> Iterator[str]:
    """Yield the lines that `print_divergence` prints."""
    if divergence.outcome == EQUAL:
        yield from _wrapped(f"no difference but rounding: they agree (largest relative error {_error(divergence)})")
        # Beside the inputs are the outputs: values-0.expected.npz, values-0.actual.npz.
        saved = sorted(str(path) for path in Path("failures").glob("*.npz") if not Path(path.stem).suffix)
        yield from _wrapped(
            "If compare fails on generated inputs, add --failures failures to it, and diagnose with each file that it "
            f"saves, such as --samples {next(iter(saved), 'failures/values-0.npz')}."
        )
        return
    if divergence.outcome == CONTRACT:
        yield from _wrapped(f"other inputs or outputs: {divergence.detail}")
        return
    if divergence.outcome == TRAIN_MODE:
        yield from _wrapped(f"the outputs differ (largest relative error {_error(divergence)})")
        yield from _wrapped(f"cause: {divergence.detail}")
        return
    are_stages = any(STAGE in place.op_types for place in divergence.located)
    matched = f"{divergence.matched} of {counted(divergence.tensors, 'stage' if are_stages else 'inner tensor')}"
    yield from _wrapped(
        f"the outputs differ (largest relative error {_error(divergence)}); {matched} of the candidate match the "
        "reference"
    )
    if not divergence.located:
        yield from _wrapped(f"cannot tell where: {divergence.detail}")
    elif divergence.not_located:
        yield from _wrapped(f"cannot tell where these outputs part: {_names(divergence.not_located)}")
    for number, place in enumerate(divergence.located, 1):
        yield from _wrapped(f"{number}. {one_line(place.what)}", indent=3)
        yield from _wrapped(f"   candidate: {_nodes(place.candidate_nodes, place.op_types)}", indent=5)
        yield from _wrapped(
            f"   reference: {_nodes(place.reference_nodes, place.reference_op_types, place.reference_code)}", indent=5
        )
        yield from _wrapped(f"   {_certainty(place, divergence)}", indent=5)
    if divergence.is_partial:
        yield from _wrapped(f"The search stopped early, after {counted(divergence.computed, 'tensor')}.")
    if is_verbose:
        yield "growth of the error, by tensor of the candidate:"
        for step in divergence.growth:
            error = "no partner" if step.error is None else f"{step.error:.1e}  {step.partner}"
            yield f"  {one_line(step.tensor)}  {one_line(error)}"


def print_minimal(minimal: Minimal | None, folder: Path | None) -> None:
    """Print where the minimal models are, what they hold, and how to run them; or why there are none."""
    for line in [] if folder is None else _minimal_lines(minimal, folder):
        echo(line)


def print_node_data(command: str, *, to_stderr: bool) -> None:
    """Print the command that opens the node data in Model Explorer."""
    echo("open the node data, with ai-edge-model-explorer and model-explorer-onnx installed, by:", err=to_stderr)
    echo(f"  {command}", err=to_stderr)


def _minimal_lines(minimal: Minimal | None, folder: Path) -> Iterator[str]:
    if minimal is None or minimal.words:
        yield from _wrapped(f"no minimal model: {'no place is named' if minimal is None else minimal.detail}")
        return
    kept = sum(not constant.is_drawn for constant in minimal.constants)
    sizes = f"{minimal.reference_nodes} and {minimal.candidate_nodes} nodes"
    inputs = "real inputs" if minimal.has_real_inputs else "drawn inputs"
    yield from _wrapped(
        f"{one_line(str(folder))} has two models ({sizes}) that show place 1 alone on {inputs}. They hold "
        f"{counted(kept, 'constant')} of your models; its README.md lists them."
    )


def _error(divergence: Divergence) -> str:
    return "infinite" if divergence.error is None else f"{divergence.error:.2g}"


def _names(names: tuple[str, ...]) -> str:
    return first_of(list(map(one_line, names)), _NAMED) or "nothing"


def _nodes(names: tuple[str, ...], operators: tuple[str, ...], code: tuple[str, ...] = ()) -> str:
    # A node without a name is called by its operator.
    nodes = [
        name if name.startswith(operator) else f"{name} ({operator})"
        for name, operator in zip(names, operators, strict=True)
    ]
    lines = [f" in {line}" if line else "" for line in code] or [""] * len(nodes)
    return _names(tuple(node + line for node, line in zip(nodes, lines, strict=True)))


def _certainty(place: Located, divergence: Divergence) -> str:
    if not place.proven:
        return f"{place.certainty}, not proven"
    where = "here" if sum(each.proven for each in divergence.located) == 1 else "in all proven places"
    return f"proven: with the reference's values {where}, and nowhere else, the outputs agree"


def _wrapped(text: str, *, indent: int = 2) -> Iterator[str]:
    yield from textwrap.wrap(
        text, _WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )


def print_graph_diff(diff: GraphDiff, *, is_verbose: bool) -> None:
    """Print how many nodes match, those of one model alone, and the first divergence; all nodes if `is_verbose`."""
    for line in _graph_lines(diff, is_verbose=is_verbose):
        echo(line)


def _graph_lines(diff: GraphDiff, *, is_verbose: bool) -> Iterator[str]:
    alone = f"{len(diff.only_in_a)} only in A, {len(diff.only_in_b)} only in B"
    have = "has a partner" if len(diff.matched) == 1 else "have partners"
    yield f"{counted(len(diff.matched), 'node')} of A {have} in B; {alone}"
    if diff.first is not None:
        yield from _wrapped(f"first divergence: {one_line(diff.first.what)}")
        yield from _wrapped(f"  A: {_named(diff.first.a)}")
        yield from _wrapped(f"  B: {_named(diff.first.b)}")
    for title, nodes in (("only in A", diff.only_in_a), ("only in B", diff.only_in_b)):
        shown = nodes if is_verbose else nodes[:_LISTED]
        more = f" and {len(nodes) - len(shown)} more" if len(nodes) > len(shown) else ""
        if nodes:
            yield from _wrapped(f"{title}: {_named(shown)}{more}")
    for pair in diff.matched if is_verbose else ():
        yield from _wrapped(f"matched: {_named([pair.a])} and {_named([pair.b])} (error {pair.error:.1e})")


def _named(nodes: Sequence[GraphNode]) -> str:
    return ", ".join(f"{one_line(node.name)} ({one_line(node.op_type)})" for node in nodes) or "nothing"

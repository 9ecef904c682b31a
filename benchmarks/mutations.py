"""Draw small faults to plant into the product: always the same for a seed, and nearly the same in an edited tree."""

from __future__ import annotations

import ast
import copy
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PARTS = ("convert", "validate", "pipelines", "src/paritygate")
KINDS = ("comparison", "constant", "early return", "dropped call")
OTHER_OPERATOR: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutation:
    """One fault: replace the bytes from `start` to `stop` of a file.

    Attributes:
        part: The part of the product, one of `PARTS`.
        path: The file, relative to the root.
        kind: One of `KINDS`.
        where: The qualified name of the function or class around it.
        line: The number of its first line.
        before: The source text that it replaces.
        after: The source text in its place.
        ordinal: How many equal faults stand before it in the same function.
        start: The first byte that it replaces.
        stop: The byte behind the last one that it replaces.
    """

    part: str
    path: str
    kind: str
    where: str
    line: int
    before: str
    after: str
    ordinal: int
    start: int
    stop: int

    @property
    def name(self) -> str:
        """Return the name by which two tables are compared; an edit elsewhere in the file does not change it."""
        return f"{self.path}:{self.where}:{self.kind}:{self.before}:{self.ordinal}"

    def apply(self, source: bytes) -> bytes:
        """Return the source with the fault in it."""
        return source[: self.start] + self.after.encode() + source[self.stop :]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fault:
    kind: str
    where: str
    node: ast.AST
    after: str


def files_of(root: Path, part: str) -> list[Path]:
    """Return the Python files of a part; links to another part are left out."""
    base = root / part
    found = (path for path in base.rglob("*.py") if not any(place.is_symlink() for place in (path, *path.parents)))
    return sorted(path for path in found if "__pycache__" not in path.parts)


def draw(root: Path, *, seed: int, count: int) -> list[Mutation]:
    """Return `count` mutations in each part, of the four kinds by turns.

    Mutations are ordered by a digest of the seed and their name, so that an edit of the product changes few of them.
    """
    drawn = []
    for part in PARTS:
        found = [mutation for path in files_of(root, part) for mutation in mutations_of(root, path, part)]
        found.sort(key=lambda mutation: hashlib.sha256(f"{seed}:{mutation.name}".encode()).digest())
        by_kind = [[mutation for mutation in found if mutation.kind == kind] for kind in KINDS]
        turns = (mutation for turn in itertools.zip_longest(*by_kind) for mutation in turn if mutation is not None)
        drawn += list(itertools.islice(turns, count))
    return drawn


def mutations_of(root: Path, path: Path, part: str) -> list[Mutation]:
    """Return all mutations of a file, in the order of the text."""
    source = path.read_bytes()
    starts = [0, *itertools.accumulate(len(line) for line in source.splitlines(keepends=True))]
    found, seen = [], Counter[tuple[str, str, str]]()
    for fault in _faults(ast.parse(source), ()):
        node = fault.node
        assert isinstance(node, ast.expr | ast.stmt)  # noqa: S101 - for mypy
        assert node.end_lineno is not None  # noqa: S101 - for mypy
        assert node.end_col_offset is not None  # noqa: S101 - for mypy
        start = starts[node.lineno - 1] + node.col_offset
        stop = starts[node.end_lineno - 1] + node.end_col_offset
        before = source[start:stop].decode()
        is_return = fault.kind == "early return"
        key = (fault.where, fault.kind, before)
        found.append(
            Mutation(
                part=part,
                path=path.relative_to(root).as_posix(),
                kind=fault.kind,
                where=fault.where,
                line=node.lineno,
                before="" if is_return else before,
                after=fault.after,
                ordinal=seen[key],
                start=start,
                stop=start if is_return else stop,
            )
        )
        seen[key] += 1
    return found


def _faults(node: ast.AST, names: tuple[str, ...]) -> Iterator[_Fault]:
    where = ".".join(names) or "module"
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OTHER_OPERATOR:
        other = copy.deepcopy(node)
        other.ops[0] = OTHER_OPERATOR[type(node.ops[0])]()
        yield _Fault(kind="comparison", where=where, node=node, after=ast.unparse(other))
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        other_value = not node.value if isinstance(node.value, bool) else node.value + 1
        yield _Fault(kind="constant", where=where, node=node, after=repr(other_value))
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield _Fault(kind="dropped call", where=where, node=node, after="pass")
    elif isinstance(node, ast.FunctionDef) and (first := _first_statement(node)) is not None:
        yield _Fault(kind="early return", where=".".join((*names, node.name)), node=first, after=_early_return(first))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        names = (*names, node.name)
    for child in _children(node):
        yield from _faults(child, names)


def _early_return(first: ast.stmt) -> str:
    is_simple = not isinstance(
        first, ast.If | ast.For | ast.While | ast.With | ast.Try | ast.FunctionDef | ast.ClassDef
    )
    return "return; " if is_simple else f"return\n{' ' * first.col_offset}"


def _first_statement(function: ast.FunctionDef) -> ast.stmt | None:
    """Return the first statement behind the docstring, unless the body has none or returns nothing anyway."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if not body or isinstance(body[0], ast.Pass | ast.Raise):
        return None
    first = body[0]
    is_nothing = isinstance(first, ast.Return) and first.value is None
    is_ellipsis = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    # A decorated statement begins before its own line.
    return None if is_nothing or is_ellipsis or getattr(first, "decorator_list", None) else first


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node that do something: no annotation, decorator, type or text."""
    if isinstance(node, ast.JoinedStr):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.keyword) and node.arg == "strict":
        # `zip(strict=True)` is a guard against faults that nobody has made yet.
        return
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "decorator_list", "bases", "slice"} and not isinstance(
            node, ast.Subscript
        ):
            continue
        children = value if isinstance(value, list) else [value]
        yield from (child for child in children if isinstance(child, ast.AST))

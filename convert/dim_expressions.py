"""Compare sizes that exporters write as expressions, such as `past + 1`, at every promised size.

They are evaluated, not simplified, which needs no algebra system. An unknown expression equals nothing.
"""

from __future__ import annotations

import ast
import itertools
import random
import re
from collections.abc import Callable, Mapping
from functools import reduce

from paritygate.signature import Dim

# The most combinations of sizes to try; beyond, a part of them is tried.
_MOST_TRIED = 20_000
# For dims without declared sizes.
_UNDECLARED = Dim(min=1, opt=8, max=1 << 16)
_SEED = 0
_LARGEST_POWER = 8
_TWO = 2

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda one, other: one + other,
    ast.Sub: lambda one, other: one - other,
    ast.Mult: lambda one, other: one * other,
    ast.FloorDiv: lambda one, other: one // other,
    ast.Mod: lambda one, other: one % other,
}
# The names that SymPy and PyTorch print.
_FUNCTIONS: Mapping[str, Callable[[int, int], int]] = {
    "Max": max,
    "Min": min,
    "FloorDiv": _OPERATORS[ast.FloorDiv],
    "CleanDiv": _OPERATORS[ast.FloorDiv],
    "Mod": _OPERATORS[ast.Mod],
    "PythonMod": _OPERATORS[ast.Mod],
}
_OF_MANY = frozenset({"Max", "Min"})


def are_equal(one: str, other: str, dims: Mapping[str, Dim], ties: Mapping[str, str] | None = None) -> bool:
    """Return whether two expressions have the same value at all sizes of the dims in them, as far as was tried.

    They hold whole numbers, names of dims, `+ - * // % **`, `Max` and `Min`; anything else, or no value at some size,
    gives False. Undeclared dims have 1 to 65536. `ties` are expressions that a dim always equals.
    """
    try:
        trees = [ast.parse(_untied(text, ties or {}), mode="eval").body for text in (one, other)]
        names = sorted(set.union(*map(_dims_in, trees)))
        ranges = [_sizes(dims.get(name, _UNDECLARED), _MOST_TRIED ** (1 / len(names))) for name in names]
        return all(
            _value(trees[0], sizes) == _value(trees[1], sizes)
            for chosen in itertools.product(*ranges)
            for sizes in (dict(zip(names, chosen, strict=True)),)
        )
    except (SyntaxError, ValueError, ArithmeticError, RecursionError):
        return False


def _untied(text: str, ties: Mapping[str, str]) -> str:
    return re.sub(r"\w+", lambda match: f"({ties[match[0]]})" if match[0] in ties else match[0], text.strip())


def _dims_in(tree: ast.expr) -> set[str]:
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called}


def _sizes(dim: Dim, most: float) -> list[int]:
    if dim.max - dim.min < most:
        return list(range(dim.min, dim.max + 1))
    near = {dim.min, dim.min + 1, dim.opt, dim.max - 1, dim.max}
    drawn = random.Random(_SEED).sample(range(dim.min, dim.max + 1), max(1, int(most) - len(near)))  # noqa: S311 - no secret
    return sorted({*near, *drawn})


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            return sizes[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, sizes)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))) if 0 <= power <= _LARGEST_POWER:
            return int(_value(left, sizes) ** power)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return _OPERATORS[type(operator)](_value(left, sizes), _value(right, sizes))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS and (
            len(arguments) == _TWO or (arguments and name in _OF_MANY)
        ):
            return reduce(_FUNCTIONS[name], [_value(argument, sizes) for argument in arguments])
        case _:
            raise ValueError(f"not an expression of sizes: {ast.dump(node)}")

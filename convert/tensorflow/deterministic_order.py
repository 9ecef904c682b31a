"""Make tf2onnx write the same file each time.

It keeps nodes in sets, ordered by memory addresses, and merges equal ones into the first. It also names parts of an
einsum by addresses. The order of texts in sets follows PYTHONHASHSEED, which exports start with.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NUMBER = "_paritygate_number"


@contextmanager
def deterministic_order() -> Iterator[None]:
    """Number the nodes that tf2onnx makes inside the context, and let it order them by these numbers."""
    from tf2onnx.graph import Node
    from tf2onnx.optimizer.einsum_optimizer import EinsumSubOp

    numbers = itertools.count()

    def number(node: Any) -> int:  # noqa: ANN401 - tf2onnx has no types
        if not hasattr(node, _NUMBER):
            setattr(node, _NUMBER, next(numbers))
        its_number: int = getattr(node, _NUMBER)
        return its_number

    def name(node: Any) -> str:  # noqa: ANN401 - as above
        return f"einsum{number(node)}_{node.name[:2]}"

    before = Node.__hash__, EinsumSubOp._onnx_name  # noqa: SLF001 - there is no other way to name them
    Node.__hash__, EinsumSubOp._onnx_name = number, name  # noqa: SLF001 - as above
    try:
        yield
    finally:
        Node.__hash__, EinsumSubOp._onnx_name = before  # noqa: SLF001 - as above

"""What a spec is to declare of a module is found by running it, and is YAML that says it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import yaml

from paritygate.convert.torch.declaration import declaration_of

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.torch

_X = np.ones((5, 4), dtype=np.float32)


class _Pair(NamedTuple):
    scores: Any
    hidden: Any


def _module(answer: Any) -> torch.nn.Module:  # noqa: ANN401 - any function of x
    import torch

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:  # noqa: ANN401 - whatever a module returns
            return answer(x)

    return Net()


def _declared(module: torch.nn.Module, rows: dict[str, Any]) -> Any:  # noqa: ANN401 - what YAML says
    return yaml.safe_load(declaration_of(module, rows))


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (lambda x: x, ["output_0"]),
        (lambda x: (x, x), ["output_0", "output_1"]),
        (lambda x: {"logits": x, "no": x, "a b": x, "state": "text"}, ["logits", "no", "a b"]),
        (lambda x: _Pair(x, x), ["scores", "hidden"]),
    ],
)
def test_outputs_are_named_as_the_module_names_them(answer: Any, names: list[str]) -> None:  # noqa: ANN401
    found = _declared(_module(answer), {"x": _X, "unused": np.zeros(5)})

    assert found["inputs"] == {"x": {"dtype": "float32", "shape": ["batch", 4]}}
    assert list(found["outputs"]) == names
    assert all(item == {"dtype": "float32", "shape": ["batch", 4]} for item in found["outputs"].values())


def test_dims_other_than_the_batch_have_the_size_that_was_seen() -> None:
    found = _declared(_module(lambda x: (x.T, x.sum(), x.long())), {"x": _X})

    assert [item["shape"] for item in found["outputs"].values()] == [[4, 5], [], ["batch", 4]]
    assert found["outputs"]["output_2"]["dtype"] == "int64"


def test_inputs_that_are_no_parameters_are_given_in_their_order() -> None:
    assert list(_declared(_module(lambda x: x), {"features": _X})["inputs"]) == ["features"]


def test_a_module_that_does_not_answer_declares_nothing() -> None:
    assert declaration_of(_module(lambda x: x.no_such_thing), {"x": _X}) == ""
    assert declaration_of(_module(lambda _: "text"), {"x": _X}) == ""
    assert declaration_of(_module(lambda x: x), {}) == ""

"""What a spec is to declare of a module is found by running it, and is YAML that says it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import yaml

from paritygate.batch import Batch
from paritygate.models.declaration import declaration_of
from paritygate.models.torch.module import tensors_of

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


def _batch(inputs: dict[str, Any], **fields: Any) -> Batch:  # noqa: ANN401 - of a batch
    return Batch(inputs=inputs, ids=[str(row) for row in range(len(next(iter(inputs.values()))))], **fields)


def _declared(module: torch.nn.Module, *batches: dict[str, Any] | Batch) -> Any:  # noqa: ANN401 - what YAML says
    given = [batch if isinstance(batch, Batch) else _batch(batch) for batch in batches]
    return yaml.safe_load(declaration_of(tensors_of(module), given))


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


def test_an_output_of_one_row_is_of_no_batch_where_no_input_is() -> None:
    """As a graph of nodes, which is one row of the samples: its pooled answer has one row whatever is asked."""
    graphs = [Batch(inputs={"x": np.ones((nodes, 4), np.float32)}, ids=[f"graph-{nodes}"]) for nodes in (3, 5, 1, 7)]

    found = _declared(_module(lambda x: (x, x.mean(0, keepdim=True))), *graphs)

    assert found["inputs"] == {"x": {"dtype": "float32", "shape": ["x_0", 4]}}
    assert [item["shape"] for item in found["outputs"].values()] == [["x_0", 4], [1, 4]]


def test_inputs_that_are_no_parameters_are_given_in_their_order() -> None:
    assert list(_declared(_module(lambda x: x), {"features": _X})["inputs"]) == ["features"]


def test_a_module_that_does_not_answer_declares_nothing() -> None:
    assert declaration_of(tensors_of(_module(lambda x: x.no_such_thing)), [_batch({"x": _X})]) == ""
    assert declaration_of(tensors_of(_module(lambda _: "text")), [_batch({"x": _X})]) == ""
    assert declaration_of(tensors_of(_module(lambda x: x)), []) == ""


def _two_inputs() -> torch.nn.Module:
    import torch

    class Net(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor, mask: torch.Tensor, boxes: torch.Tensor) -> dict[str, torch.Tensor]:
            hidden = input_ids * mask + boxes.sum(-1)
            return {"hidden": hidden, "logits": hidden[:, :1].expand(-1, 3), "twice": torch.cat([hidden, hidden], 1)}

    return Net()


def _of_lengths(rows: int, length: int, **fields: Any) -> Batch:  # noqa: ANN401 - of a batch
    ids = np.ones((rows, length), np.int64)
    return _batch({"input_ids": ids, "mask": ids, "boxes": np.ones((rows, length, 4), np.int64)}, **fields)


def test_dims_that_vary_over_all_rows_are_named_and_equal_ones_share_a_name() -> None:
    # In the first batch, the length is that of the logits as well.
    found = _declared(_two_inputs(), _of_lengths(4, 3), _of_lengths(2, 3), _of_lengths(2, 5))

    shapes = {name: item["shape"] for part in found.values() for name, item in part.items()}
    assert shapes == {
        "input_ids": ["batch", "sequence"],
        "mask": ["batch", "sequence"],
        "boxes": ["batch", "sequence", 4],
        "hidden": ["batch", "sequence"],
        "logits": ["batch", 3],
        "twice": ["batch", "twice_1"],
    }


@pytest.mark.parametrize(
    ("first", "second", "dtype", "shape"),
    [
        ((8,), (9,), "int64", ["sequence"]),
        ((8,), (9,), "float32", ["x_length"]),
        ((8, 2), (9, 2), "float32", ["x_length", 2]),
        ((2, 8), (2, 9), "float32", [2, "x_2"]),
        ((3, 8, 12), (3, 9, 15), "float32", [3, "height", "width"]),
        ((8, 12, 1), (9, 15, 1), "uint8", ["height", "width", 1]),
        ((3, 8, 8), (3, 9, 9), "float32", [3, "side", "side"]),
        ((2, 8, 2, 2), (2, 9, 2, 2), "float32", [2, "x_2", 2, 2]),
    ],
)
def test_a_dim_is_named_by_what_it_is_where_there_is_a_word_for_it(
    first: tuple[int, ...], second: tuple[int, ...], dtype: str, shape: list[int | str]
) -> None:
    batches = [_batch({"x": np.ones((2, *sizes), dtype)}) for sizes in (first, second)]

    assert _declared(_module(lambda x: x), *batches)["inputs"]["x"]["shape"] == ["batch", *shape]


def test_two_dims_of_one_kind_are_named_after_their_inputs() -> None:
    import torch

    class Net(torch.nn.Module):
        def forward(self, question: torch.Tensor, answer: torch.Tensor) -> torch.Tensor:
            return question.sum(1) + answer.sum(1)

    ids = [np.ones((2, size), np.int64) for size in (3, 4, 5, 7)]
    batches = [_batch({"question": ids[at], "answer": ids[at + 2]}) for at in (0, 1)]

    inputs = _declared(Net(), *batches)["inputs"]
    assert inputs["question"]["shape"] == ["batch", "question_sequence"]
    assert inputs["answer"]["shape"] == ["batch", "answer_sequence"]


def test_rows_that_were_filled_up_in_one_batch_vary_as_well() -> None:
    lengths = {"input_ids": [7, 2], "mask": [7, 2], "boxes": [7, 6]}

    found = _declared(_two_inputs(), _of_lengths(2, 7, lengths=lengths))

    assert found["inputs"]["mask"]["shape"] == ["batch", "sequence"]
    # These two differ in length in a row, so they are two dims.
    assert found["inputs"]["boxes"]["shape"] == ["batch", "boxes_length", 4]


def test_dims_that_never_vary_are_said_to_be_fixed() -> None:
    batches = [_of_lengths(2, 7), _of_lengths(3, 5)]

    assert "  # in all 5 rows: axis 2 of boxes is 4\n  outputs: {" in declaration_of(tensors_of(_two_inputs()), batches)


def test_text_beside_the_inputs_is_left_out() -> None:
    assert list(_declared(_module(lambda x: x), {"x": _X, "text": np.array(["a"] * 5)})["inputs"]) == ["x"]

"""TorchScript files of somebody else's, which do not say what their outputs are called, against other models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch
    from tests.pipelines.conftest import Desk
else:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'paritygate[torch]'")

pytestmark = pytest.mark.torch

_MODEL = """
    import torch


    class Net(torch.nn.Module):
        def __init__(self, offset=0.0):
            super().__init__()
            torch.manual_seed(0)
            self.linear = torch.nn.Linear(4, 3)
            self.offset = offset

        def forward(self, x):
            return {"logits": self.linear(x) + self.offset}


    def load():
        return Net().eval()
    """


class _Net(torch.nn.Module):
    def __init__(self, offset: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 3)
        self.offset = offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + self.offset


@pytest.fixture
def traces(desk: Desk) -> Desk:
    """A module, a trace of it, and one that answers otherwise."""
    desk.module("net", _MODEL)
    desk.samples()
    for name, offset in (("right.pt", 0.0), ("wrong.pt", 0.5)):
        traced = torch.jit.trace(_Net(offset).eval(), torch.zeros(2, 4))  # type: ignore[no-untyped-call]
        traced.save(str(desk.folder / name))
    return desk


@pytest.mark.parametrize(
    ("reference", "candidate", "options", "code"),
    [
        # One does its jobs in children, where the candidate is really asked in another process.
        pytest.param("net:load", "right.pt", (), 0, marks=pytest.mark.children),
        ("net:load", "wrong.pt", (), 1),
        ("right.pt", "net:load", ("--map", "logits=output_0"), 0),
        ("right.pt", "wrong.pt", (), 1),
    ],
)
def test_outputs_without_names_are_those_of_the_other_side_or_called_by_their_order(
    traces: Desk, reference: str, candidate: str, options: tuple[str, ...], code: int
) -> None:
    called = traces.json("compare", reference, candidate, "--samples", "inputs.npz", *options)

    assert called.code == code, str(called)
    assert called.data["verdict"] == ("fail" if code else "pass")
    # A process of its own asks the candidate afresh: it is to have the same names there.
    assert called.data["probes"]["asked"]["fresh"]["error"] == ""


def test_a_file_that_was_saved_in_train_mode_warns(traces: Desk) -> None:
    torch.jit.script(_Net().train()).save(str(traces.folder / "train.pt"))

    called = traces.json("compare", "net:load", "train.pt", "--samples", "inputs.npz", "--probes", "none")

    (check,) = [check for check in called.data["checks"] if check["name"] == "provider"]
    assert (called.code, check["status"]) == (0, "warning")

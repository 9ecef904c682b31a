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


class _WithPart(_Net):
    def __init__(self, part: torch.nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(self.linear(x))


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


@pytest.mark.parametrize(
    ("part", "save", "names"),
    [
        (torch.nn.Dropout(0.0), "script", None),
        (torch.nn.Dropout(0.5), "script", "part: Dropout"),
        (torch.nn.BatchNorm1d(3), "script", "part: BatchNorm1d"),
        (torch.nn.Dropout(0.5), "trace", "dropout"),
        (torch.nn.Dropout(0.5), "export", "dropout"),
        (torch.nn.BatchNorm1d(3), "export", "batch_norm"),
    ],
)
def test_a_candidate_in_train_mode_is_measured_in_train_mode(
    traces: Desk, part: torch.nn.Module, save: str, names: str | None
) -> None:
    net = _WithPart(part).train()
    rows = torch.zeros(2, 4)
    if save == "export":
        dims = ({0: torch.export.Dim("batch", min=2)},)
        torch.export.save(torch.export.export(net, (rows,), dynamic_shapes=dims), traces.folder / "train.pt2")
    else:
        made = torch.jit.script(net) if save == "script" else torch.jit.trace(net, rows, check_trace=False)  # type: ignore[no-untyped-call]
        made.save(str(traces.folder / "train.pt"))
    models = ("right.pt", "train.pt2" if save == "export" else "train.pt", "--samples", "inputs.npz")

    compared = traces.json("compare", *models, "--probes", "none")
    diagnosed = traces.json("diagnose", *models)

    verdict, outcome = ("fail", "train_mode") if names else ("pass", "equal")
    assert (compared.data["verdict"], diagnosed.data["outcome"]) == (verdict, outcome)
    assert any("train mode" in note for note in compared.data["notes"])
    assert [cause["kind"] for cause in compared.data["causes"]] == ["training_mode"] * bool(names)
    causes = [cause["words"] for cause in compared.data["causes"]] + [diagnosed.data["words"]] * bool(names)
    assert all(words[0]["values"]["names"] == names for words in causes)


def test_statistics_that_were_frozen_in_train_mode_are_the_cause(traces: Desk) -> None:
    # Frozen, the running mean is a constant. Behind Tanh it is not folded into the weights.
    part = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.BatchNorm1d(3))
    traced = torch.jit.trace(_WithPart(part).train(), torch.zeros(2, 4), check_trace=False)  # type: ignore[no-untyped-call]
    torch.jit.freeze(traced.eval()).save(str(traces.folder / "frozen.pt"))

    called = traces.json("compare", "right.pt", "frozen.pt", "--samples", "inputs.npz", "--probes", "none")

    assert called.data["verdict"] == "fail"
    assert [cause["kind"] for cause in called.data["causes"]] == ["training_mode"]


def test_a_part_in_train_mode_that_changes_nothing_hides_no_other_fault(traces: Desk) -> None:
    net = _WithPart(torch.nn.Dropout(0.0)).train()
    with torch.no_grad():
        next(net.parameters()).mul_(-1)
    torch.jit.script(net).save(str(traces.folder / "wrong.pt"))

    called = traces.json("diagnose", "right.pt", "wrong.pt", "--samples", "inputs.npz")

    assert called.data["outcome"] not in {"train_mode", "equal"}


def test_a_reference_in_train_mode_is_run_in_eval_mode(traces: Desk) -> None:
    torch.jit.script(torch.nn.Sequential(_Net(), torch.nn.Dropout(0.5)).train()).save(str(traces.folder / "train.pt"))

    called = traces.json("compare", "train.pt", "right.pt", "--samples", "inputs.npz", "--probes", "none")

    assert (called.code, called.data["verdict"]) == (0, "pass")

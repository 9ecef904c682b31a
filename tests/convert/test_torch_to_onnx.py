"""PyTorch to ONNX, through the checks that every conversion ends with."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from paritygate.convert import torch_to_onnx
from paritygate.convert.checked import convert_and_check
from paritygate.errors import ConversionError, UnsupportedOperatorsError, UsageError

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'paritygate[torch]'")
pytestmark = pytest.mark.torch

IDS_AND_MASK = {"input_ids": "int64[batch, sequence]", "attention_mask": "int64[batch, sequence]"}
RANGES = {"batch": (1, 4, 16), "sequence": (2, 8, 32)}


class Encoder(torch.nn.Module):
    """Returns a dict whose keys come in another order than any signature here."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(50, 8)
        self.head = torch.nn.Linear(8, 1)

    def forward(self, input_ids, attention_mask):
        hidden = self.embedding(input_ids) * attention_mask[..., None]
        pooled = hidden.sum(dim=1) / attention_mask.sum(dim=1, keepdim=True).clamp(min=1)
        return {"zlogits": self.head(pooled), "aux": hidden.mean(dim=(1, 2), keepdim=False), "extra": pooled}


def pairs(batch: int, sequence: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(batch * 100 + sequence)
    ids = random.integers(0, 50, (batch, sequence))
    mask = (random.random((batch, sequence)) < 0.7).astype(np.int64)
    return {"input_ids": ids, "attention_mask": mask}


@pytest.fixture(scope="module")
def encoder(sign, tmp_path_factory):
    """Convert the encoder once, with inputs in another order than forward has them."""
    from paritygate.convert.conversion import ConversionJob
    from paritygate.source import Source, SourceKind

    folder = tmp_path_factory.mktemp("encoder")
    signature = sign(
        {"mask": "int64[batch, sequence]", "input_ids": "int64[batch, sequence]"},
        {"aux": "float32[batch]", "score": "float32[batch, 1]"},
        **RANGES,
    )
    job = ConversionJob(
        source=Source(text="net:model", folder=folder, kind=SourceKind.TORCH),
        model=Encoder(),
        folder=folder / "converted",
        signature=signature,
        rename={"zlogits": "score", "attention_mask": "mask"},
    )
    return job, convert_and_check(job, "onnx")


@pytest.mark.parametrize(("batch", "sequence"), [(1, 2), (3, 7), (16, 32)])
def test_each_name_has_its_own_tensor_at_every_size(encoder, run_onnx, assert_near, batch, sequence):
    job, conversion = encoder
    inputs = pairs(batch, sequence)
    with torch.inference_mode():
        expected = job.model(**{name: torch.from_numpy(array) for name, array in inputs.items()})
    actual = run_onnx(job, conversion, {"mask": inputs["attention_mask"], "input_ids": inputs["input_ids"]})
    assert list(actual) == ["aux", "score"]
    assert_near(actual["aux"], expected["aux"])
    assert_near(actual["score"], expected["zlogits"])


def test_the_file_has_the_names_order_and_symbolic_dims_of_the_signature(encoder):
    job, conversion = encoder
    assert conversion.signature == job.signature


def test_a_module_in_train_mode_is_put_into_eval_mode_with_a_note(encoder):
    job, conversion = encoder
    assert not job.model.training
    assert any("was in train mode" in note for note in conversion.notes)


def test_outputs_that_are_not_in_the_signature_are_noted(encoder):
    assert "outputs not in the signature were left out: extra" in encoder[1].notes


def test_opset_and_ir_version_are_read_back(encoder):
    job, conversion = encoder
    model = onnx.load(str(job.folder / conversion.main))
    assert conversion.facts["opset"] == model.opset_import[0].version == 18
    assert conversion.facts["ir_version"] == model.ir_version <= 10


def test_small_weights_are_in_the_one_file_that_is_written(encoder):
    job, _ = encoder
    assert [path.name for path in job.folder.iterdir()] == ["model.onnx"]


def test_the_file_holds_no_path_of_this_machine(encoder):
    job, conversion = encoder
    assert b"test_torch_to_onnx.py" not in (job.folder / conversion.main).read_bytes()


def test_dropout_is_gone_from_a_module_in_train_mode(make_job, sign, run_onnx):
    class Noisy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = torch.nn.Dropout(0.5)

        def forward(self, x):
            return self.dropout(x)

    model = Noisy().eval()
    model.dropout.train()
    job = make_job(kind="torch", model=model, signature=sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}))
    conversion = convert_and_check(job, "onnx")
    x = np.ones((3, 4), np.float32)
    assert np.array_equal(run_onnx(job, conversion, {"x": x})["y"], x)
    assert "first 'dropout'" in conversion.notes[0]


def test_inputs_go_by_order_where_forward_has_none_of_their_names(make_job, sign, run_onnx, assert_near):
    class Difference(torch.nn.Module):
        def forward(self, a, b):
            return a - b

    signature = sign({"left": "float32[batch, 2]", "right": "float32[batch, 2]"}, {"out": "float32[batch, 2]"})
    job = make_job(kind="torch", model=Difference(), signature=signature)
    conversion = convert_and_check(job, "onnx")
    left, right = np.full((2, 2), 5, np.float32), np.ones((2, 2), np.float32)
    assert_near(run_onnx(job, conversion, {"left": left, "right": right})["out"], left - right)


def test_integers_and_bools_keep_their_dtypes_and_a_tuple_its_order(make_job, sign, run_onnx, assert_near):
    class Several(torch.nn.Module):
        def forward(self, ids, keep):
            return ids.argmax(dim=1), keep & (ids > 3), ids.to(torch.float64) / 3

    signature = sign(
        {"ids": "int32[batch, 5]", "keep": "bool[batch, 5]"},
        {"best": "int64[batch]", "kept": "bool[batch, 5]", "third": "float64[batch, 5]"},
    )
    job = make_job(kind="torch", model=Several(), signature=signature)
    conversion = convert_and_check(job, "onnx")
    ids = np.arange(10, dtype=np.int32).reshape(2, 5)
    keep = ids % 2 == 0
    actual = run_onnx(job, conversion, {"ids": ids, "keep": keep})
    for name, expected in zip(
        ("best", "kept", "third"), job.model(torch.from_numpy(ids), torch.from_numpy(keep)), strict=True
    ):
        assert_near(actual[name], expected)


def test_a_dim_of_one_size_may_be_fixed(make_job, sign):
    signature = sign(
        {"x": "float32[batch, sequence]"}, {"y": "float32[batch, sequence]"}, batch=(1, 2, 8), sequence=(16, 16, 16)
    )
    job = make_job(kind="torch", model=torch.nn.ReLU(), signature=signature)
    conversion = convert_and_check(job, "onnx")
    assert conversion.signature.inputs[0].shape == ("batch", 16)


def test_a_symbol_that_is_no_python_name_is_kept(make_job, sign):
    signature = sign({"x": "float32[batch, seq-len]"}, {"y": "float32[batch, seq-len]"})
    job = make_job(kind="torch", model=torch.nn.ReLU(), signature=signature)
    assert convert_and_check(job, "onnx").signature == signature


def test_another_opset_is_written_where_it_can_be(make_job, sign):
    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"})
    job = make_job(kind="torch", model=torch.nn.ReLU(), signature=signature, opset=20)
    assert convert_and_check(job, "onnx").facts["opset"] == 20


def test_an_opset_that_the_exporter_could_not_write_is_an_error(make_job, sign):
    class Reshaped(torch.nn.Module):
        def forward(self, x):
            return x.reshape(x.shape[0] * 2, -1)

    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[rows, 2]"})
    job = make_job(kind="torch", model=Reshaped(), signature=signature, opset=13)
    with pytest.raises(ConversionError, match="opset 13 was asked for, .* from opset 18 to it"):
        convert_and_check(job, "onnx")


def test_unsupported_operators_come_as_one_table(make_job, sign):
    class Unsupported(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.eigvalsh(x) + torch.linalg.svdvals(x)

    signature = sign({"x": "float32[batch, 4, 4]"}, {"y": "float32[batch, 4]"})
    job = make_job(kind="torch", model=Unsupported(), signature=signature)
    with pytest.raises(UnsupportedOperatorsError, match="ONNX does not have these operators") as caught:
        convert_and_check(job, "onnx")
    operators = {row[0] for row in caught.value.rows}
    assert operators == {"aten._linalg_eigh.default", "aten._linalg_svd.default"}
    assert all(all(row) for row in caught.value.rows)
    assert "Traceback" not in str(caught.value)


def test_a_branch_on_a_value_is_named_with_its_line(make_job, sign):
    class Branching(torch.nn.Module):
        def forward(self, x):
            if x.mean() > 0:
                return x * 2
            return x

    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"})
    job = make_job(kind="torch", model=Branching(), signature=signature)
    with pytest.raises(ConversionError, match=r"branches on the values of a tensor at .*: if x.mean\(\) > 0") as caught:
        convert_and_check(job, "onnx")
    assert "torch.where" in caught.value.hint


def test_a_branch_on_a_shape_is_refused_and_not_baked_in(make_job, sign):
    class Branching(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x.shape[0] > 4 else x

    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"}, batch=(1, 8, 64))
    job = make_job(kind="torch", model=Branching(), signature=signature)
    with pytest.raises(ConversionError, match="'batch' from 5 to 64 only, the signature promises it from 1 to 64"):
        convert_and_check(job, "onnx")


def test_a_branch_on_a_shape_without_declared_range_is_refused_too(make_job, sign):
    class Branching(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x.shape[0] > 4 else x

    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"})
    job = make_job(kind="torch", model=Branching(), signature=signature)
    with pytest.raises(ConversionError, match="'batch' from 5 on only, the signature promises it of any size"):
        convert_and_check(job, "onnx")


def test_a_module_that_fixes_a_promised_dim_is_refused(make_job, sign):
    class Fixed(torch.nn.Module):
        def forward(self, x):
            return x + torch.ones(8, 3)

    signature = sign({"x": "float32[batch, 3]"}, {"y": "float32[batch, 3]"}, batch=(2, 8, 16))
    job = make_job(kind="torch", model=Fixed(), signature=signature)
    with pytest.raises(ConversionError, match="dim 0 of input 'x' is fixed at 8, promised is batch"):
        convert_and_check(job, "onnx")


def test_an_output_whose_dim_is_an_expression_is_not_taken_for_the_batch(make_job, sign):
    class Doubled(torch.nn.Module):
        def forward(self, x):
            return torch.cat([x, x])

    signature = sign({"x": "float32[batch, 3]"}, {"y": "float32[batch, 3]"})
    job = make_job(kind="torch", model=Doubled(), signature=signature)
    with pytest.raises(ConversionError, match=r"dim 0 of output 'y' is 2\*batch, promised is batch"):
        convert_and_check(job, "onnx")


def test_a_missing_output_is_named_with_those_there(make_job, sign):
    signature = sign(dict(IDS_AND_MASK), {"logits": "float32[batch, 1]"}, **RANGES)
    job = make_job(kind="torch", model=Encoder(), signature=signature)
    with pytest.raises(UsageError, match=r"no output 'logits' \(it returned: 'zlogits', 'aux', 'extra'\)"):
        convert_and_check(job, "onnx")


def test_an_error_of_the_module_is_one_line_with_its_place(make_job, sign):
    class Broken(torch.nn.Module):
        def forward(self, x):
            return x @ torch.ones(5, 5)

    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 5]"})
    job = make_job(kind="torch", model=Broken(), signature=signature)
    with pytest.raises(
        ConversionError, match=r"RuntimeError: a and b must have same reduction dim.*torch.ones\(5, 5\)"
    ):
        convert_and_check(job, "onnx")


def test_a_module_without_a_signature_is_refused(make_job):
    with pytest.raises(UsageError, match="does not say what its inputs and outputs are"):
        convert_and_check(make_job(kind="torch", model=torch.nn.ReLU()), "onnx")


def test_torchscript_is_refused_with_what_to_give_instead(make_job, sign):
    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"})
    job = make_job(kind="torch", model=torch.jit.script(torch.nn.ReLU()), signature=signature)
    with pytest.raises(ConversionError, match="is TorchScript"):
        convert_and_check(job, "onnx")


def test_an_input_without_a_full_shape_is_refused(make_job, sign):
    signature = sign({"x": "float32[batch, ?]"}, {"y": "float32[batch, ?]"})
    with pytest.raises(UsageError, match=r"input x: float32\[batch, \?\] has no full shape"):
        convert_and_check(make_job(kind="torch", model=torch.nn.ReLU(), signature=signature), "onnx")


def test_text_inputs_are_refused(make_job, sign):
    signature = sign({"x": "string[batch]"}, {"y": "float32[batch]"})
    with pytest.raises(UsageError, match="PyTorch has no dtype 'string'"):
        convert_and_check(make_job(kind="torch", model=torch.nn.ReLU(), signature=signature), "onnx")


def test_large_weights_lie_beside_the_file(make_job, sign, run_onnx, assert_near, monkeypatch):
    monkeypatch.setattr(torch_to_onnx, "EXTERNAL_DATA_BYTES", 1000)
    model = torch.nn.Linear(64, 32)
    signature = sign({"input": "float32[batch, 64]"}, {"y": "float32[batch, 32]"})
    job = make_job(kind="torch", model=model, signature=signature)
    conversion = convert_and_check(job, "onnx")
    assert sorted(path.name for path in job.folder.iterdir()) == ["model.onnx", "model.onnx.data"]
    x = np.random.default_rng(0).standard_normal((3, 64), np.float32)
    assert_near(run_onnx(job, conversion, {"input": x})["y"], model(torch.from_numpy(x)).detach())

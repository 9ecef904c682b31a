"""The recipe for a Hugging Face model, run as it stands, with the package that it names."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest

if TYPE_CHECKING:
    from tests.docs.conftest import Page

    Shell = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.thorough]

ROWS = 120
_IDS = 500
_LENGTHS = (4, 7, 12, 20, 33, 40)
# Random weights, which are to move the answers: of a model as it is initialised, all are next to equal.
_WEIGHTS = """
import json, pathlib, torch, transformers

torch.manual_seed(0)
config = transformers.{config}
model = transformers.AutoModelForSequenceClassification.from_config(config).eval()
rows = [json.loads(line)["input_ids"] for line in pathlib.Path("samples.jsonl").read_text().splitlines()]
*_, head = (module for module in model.modules() if isinstance(module, torch.nn.Linear))
with torch.no_grad():
    for weight in model.parameters():
        weight += 0.1 * torch.randn(weight.shape)
    logits = torch.cat([model(input_ids=torch.tensor([row])).logits for row in rows])
    head.bias.copy_((head.bias - logits.mean(0)) / logits.std(0))
    head.weight.div_(logits.std(0)[:, None])
    logits = torch.cat([model(input_ids=torch.tensor([row])).logits for row in rows])
assert torch.allclose(logits.std(0), torch.ones(3), atol=0.01)
assert (logits.argmax(1).bincount(minlength=3) > len(rows) / 10).all()
model.save_pretrained("weights")
"""
_TOOL = """#!{python}
import sys

sys.path.insert(0, {root!r})
from tests.pipelines.conftest import jobs_done_here
from paritygate.__main__ import main

sys.path.remove({root!r})
with jobs_done_here():
    main()
"""
_SIZES = f"vocab_size={_IDS}, num_labels=3"
_LAYERS = "hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128"
CONFIGS = {
    "bert": f"BertConfig({_SIZES}, {_LAYERS}, max_position_embeddings=128)",
    "distilbert": f"DistilBertConfig({_SIZES}, dim=64, n_layers=2, n_heads=4, hidden_dim=128)",
    # Its positions begin behind the id of padding.
    "roberta": f"RobertaConfig({_SIZES}, {_LAYERS}, max_position_embeddings=130)",
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The recipe after it was run: the folder, and what was printed."""

    folder: Path
    out: str

    @property
    def run(self) -> Path:
        """The folder of the run."""
        (found,) = (self.folder / "artifacts/runs/my-classifier").iterdir()
        return found


def _run(recipe_page: Page, folder: Path, shell: Shell, config: str, root: Path) -> Recipe:
    """Write the recipe's files as the page has them and what it says the user has, and do what it says."""
    folder.mkdir(exist_ok=True)
    for name, text in recipe_page.files().items():
        (folder / name).write_text(text, encoding="utf-8")
    shown = json.loads(next(block.text for block in recipe_page.blocks if block.language == "json"))
    numbers = random.Random(0)  # noqa: S311 - made-up tokens
    lines = []
    for row in range(ROWS):
        length = numbers.choice(_LENGTHS)
        ids = [2, *(numbers.randrange(4, _IDS) for _ in range(length - 2)), 3]
        values = {"id": f"review-{row}", "input_ids": ids, "attention_mask": [1] * length}
        assert list(values) == list(shown)
        lines.append(json.dumps(values))
    (folder / "samples.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "weights.py").write_text(_WEIGHTS.format(config=config), encoding="utf-8")
    shell(folder, "python weights.py")
    (commands,) = [block.text for block in recipe_page.blocks if "recipe" in block.words]
    place = _tool_of_one_process(folder.with_name(f"{folder.name}-tool"), root)
    return Recipe(folder=folder, out=shell(folder, f'PATH="{place}:$PATH"\n{commands}').stdout)


def _tool_of_one_process(folder: Path, root: Path) -> str:
    """Write the tool, but for its child processes, and return its folder.

    Each of them would import PyTorch and Transformers for seconds; the README and the quickstart run with children.
    """
    folder.mkdir()
    tool = folder / "convert-and-validate"
    tool.write_text(_TOOL.format(python=sys.executable, root=str(root)), encoding="utf-8")
    tool.chmod(0o755)
    return str(folder)


def _assert_green(recipe: Recipe) -> None:
    assert "released my-classifier version 1, alias prod: onnx-fp32" in recipe.out
    assert f" on {ROWS} rows\n" in recipe.out
    result = json.loads((recipe.run / "evidence.json").read_text(encoding="utf-8"))["variants"][0]["result"]
    status = {check["name"]: check["status"] for check in result["checks"]}
    assert "fail" not in status.values()
    assert status["probe_masks"] == "edge"
    assert "an empty row of attention_mask" in [finding["edge"] for finding in result["edge_findings"]]


@pytest.fixture(scope="module")
def recipe_page(pages: dict[str, Page]) -> Page:
    """Return the page of the recipe."""
    return pages["docs/recipes/bert.md"]


@pytest.fixture(scope="module")
def bert(
    recipe_page: Page, run_shell_in: Shell, project_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Recipe:
    """Return the recipe, run with a BERT."""
    return _run(recipe_page, tmp_path_factory.mktemp("bert"), run_shell_in, CONFIGS["bert"], project_root)


def test_the_recipe_ends_in_a_release_and_tells_once_of_what_no_sample_has(bert: Recipe) -> None:
    _assert_green(bert)
    text = " ".join(bert.out.split())
    words = "an empty row of attention_mask, unlike every sample: outputs differ: max_abs_diff: "

    assert text.count("an empty row of attention_mask, unlike every sample") == 1
    assert f"out-of-sample finding: onnx-fp32: {words}" in text
    for name in ("report.html", "report.md"):
        page = (bert.run / name).read_text(encoding="utf-8")
        assert "Differences unlike every sample" in page
    evidence = json.loads((bert.run / "evidence.json").read_text(encoding="utf-8"))
    (entry,) = evidence["variants"]
    (check,) = (item for item in entry["result"]["checks"] if item["name"] == "probe_masks")
    assert "an empty row of attention_mask" in check["detail"]


def _without_mask(model: onnx.ModelProto) -> None:
    """Have the model take every position for a real one."""
    for node in model.graph.node:
        for at, name in enumerate(node.input):
            if name == "attention_mask":
                node.input[at] = "every_position"
    nodes = [
        onnx.helper.make_node("Sub", ["attention_mask", "attention_mask"], ["no_position"]),
        onnx.helper.make_node("Add", ["no_position", "one"], ["every_position"]),
    ]
    for node in reversed(nodes):
        model.graph.node.insert(0, node)
    model.graph.initializer.append(onnx.helper.make_tensor("one", onnx.TensorProto.INT64, [], [1]))


def _with_labels_swapped(model: onnx.ModelProto) -> None:
    """Have the first label stand where the second one does."""
    (last,) = (node for node in model.graph.node if "logits" in node.output)
    last.output[0] = "in_order"
    model.graph.node.append(onnx.helper.make_node("Gather", ["in_order", "order"], ["logits"], axis=1))
    model.graph.initializer.append(onnx.helper.make_tensor("order", onnx.TensorProto.INT64, [3], [1, 0, 2]))


@pytest.mark.parametrize("plant", [_without_mask, _with_labels_swapped])
@pytest.mark.thorough
def test_a_fault_planted_into_what_the_recipe_made_fails(
    bert: Recipe, run_shell_in: Shell, tmp_path: Path, plant: Callable[[onnx.ModelProto], None]
) -> None:
    model = onnx.load(bert.run / "onnx-fp32" / "model.onnx")
    plant(model)
    onnx.save(model, tmp_path / "planted.onnx")
    padding = "--pad input_ids=0 --pad attention_mask=0 --batch-size 8"

    ran = run_shell_in(
        bert.folder,
        f"convert-and-validate compare '{bert.run}/reference' '{tmp_path}/planted.onnx' --samples samples.jsonl "
        f"{padding} --decision logits:argmax",
        code=1,
    )

    assert "verdict: fail" in ran.stdout


@pytest.mark.parametrize("kind", ["distilbert", "roberta"])
@pytest.mark.thorough
def test_the_recipe_ends_in_a_release_for_other_models_too(
    recipe_page: Page, run_shell_in: Shell, project_root: Path, tmp_path: Path, kind: str
) -> None:
    _assert_green(_run(recipe_page, tmp_path / "recipe", run_shell_in, CONFIGS[kind], project_root))


def test_the_recipe_is_as_short_as_it_is_said_to_be(recipe_page: Page) -> None:
    model = recipe_page.files()["model.py"]

    assert len([line for line in model.splitlines() if line.strip()]) <= 10

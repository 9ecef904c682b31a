"""The README shows what really happens: its output, its recipe, its extras, its folders."""

from __future__ import annotations

import importlib.metadata
import json
import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.docs.conftest import Block, Page

# What the recipe needs of `transformers`: a module that returns a ModelOutput, which is an OrderedDict of its outputs.
STAND_IN = '''
from collections import OrderedDict

import torch


class ModelOutput(OrderedDict):
    """Outputs by name and by attribute; those that are None are left out, as the real one does."""

    def __init__(self, **outputs):
        super().__init__((name, value) for name, value in outputs.items() if value is not None)

    def __getattr__(self, name):
        return self[name]


class Classifier(torch.nn.Module):
    def __init__(self, weights):
        super().__init__()
        assert (weights / "config.json").is_file()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(1000, 32)
        self.dropout = torch.nn.Dropout(0.5)
        self.head = torch.nn.Linear(32, 3)

    def forward(self, input_ids=None, attention_mask=None, token_type_ids=None, labels=None, return_dict=None):
        mask = attention_mask.unsqueeze(-1).to(torch.float32)
        hidden = self.embedding(input_ids)
        pooled = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
        loss = None if labels is None else torch.zeros(())
        return ModelOutput(loss=loss, logits=self.head(self.dropout(pooled)), hidden_states=hidden)


class AutoModelForSequenceClassification:
    @classmethod
    def from_pretrained(cls, path, *, local_files_only):
        assert local_files_only
        return Classifier(path).eval()
'''
ROWS = 120


@pytest.fixture
def readme(pages: dict[str, Page]) -> Page:
    """Return the README."""
    return pages["README.md"]


def blocks_of_example(readme: Page) -> tuple[Block, Block]:
    """Return the commands of the example, and the output that stands below them."""
    blocks = readme.blocks
    at = next(index for index, block in enumerate(blocks) if block.language == "text" and "output" in block.words)
    commands = [block for block in blocks[:at] if block.is_run]
    return commands[-1], blocks[at]


def test_the_example_is_the_demo(readme: Page, project_root: Path) -> None:
    commands, _ = blocks_of_example(readme)
    makefile = (project_root / "Makefile").read_text(encoding="utf-8")

    assert f"$(BIN)/{commands.text.splitlines()[0]}\n" in makefile


def test_the_output_shown_is_a_pass_on_519_rows(readme: Page) -> None:
    _, shown = blocks_of_example(readme)
    rows = [line for line in shown.text.splitlines() if re.match(r"│ \w+-fp32 ", line)]

    assert len(rows) == 5
    assert all("│ 519 " in row and row.rstrip("│ ").endswith(" pass") for row in rows)


def write_recipe(readme: Page, folder: Path) -> None:
    """Write the recipe's files as the README has them, and what it says the user has: weights and samples."""
    for name, text in readme.files().items():
        (folder / name).write_text(text, encoding="utf-8")
    weights = folder / "weights"
    weights.mkdir()
    for name in ("config.json", "model.safetensors"):
        (weights / name).write_text("{}", encoding="utf-8")
    (folder / "transformers.py").write_text(STAND_IN, encoding="utf-8")
    shown = json.loads(next(block.text for block in readme.blocks if block.language == "json"))
    numbers = random.Random(0)  # noqa: S311 - made-up tokens
    lines = []
    for row in range(ROWS):
        length = numbers.randint(4, 40)
        values = {
            "id": f"row-{row}",
            "input_ids": [numbers.randint(1, 999) for _ in range(length)],
            "attention_mask": [1] * length,
        }
        assert list(values) == list(shown)
        lines.append(json.dumps(values))
    (folder / "samples.jsonl").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(600)
def test_the_recipe_for_a_hugging_face_model_ends_in_a_release(
    readme: Page, run_shell: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    write_recipe(readme, tmp_path)
    (commands,) = [block.text for block in readme.blocks if "recipe" in block.words]

    ran = run_shell(commands)

    assert "released my-classifier version 1, alias prod: onnx-fp32" in ran.stdout
    assert f"│ {ROWS} " in ran.stdout


def test_the_recipe_is_as_short_as_it_is_said_to_be(readme: Page) -> None:
    model = readme.files()["model.py"]

    assert len([line for line in model.splitlines() if line.strip()]) <= 10


def test_extras_are_those_of_the_package(readme: Page) -> None:
    metadata = importlib.metadata.metadata("paritygate")
    requirements = importlib.metadata.requires("paritygate") or []
    rows = {row[0].strip("`"): row[1] for row in readme.rows("Install")}

    assert sorted(rows) == sorted(metadata.get_all("Provides-Extra") or [])
    for extra, brings in rows.items():
        names = {re.split(r"[^\w-]", line)[0] for line in requirements if re.search(rf"extra == .{extra}\b", line)}
        assert extra == "dev" or set(brings.split(", ")) == names


def test_every_folder_has_its_line(readme: Page, project_root: Path) -> None:
    listed = {row[0].strip("`/").partition("/")[0] for row in readme.rows("What is where")}
    made = {"build", "dist"}
    there = {path.name for path in project_root.iterdir() if path.is_dir() and not path.name.startswith(".")}

    assert listed == there - made


def test_targets_of_make_exist(pages: dict[str, Page], project_root: Path) -> None:
    makefile = (project_root / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = {target for page in pages.values() for target in re.findall(r"`make ([\w-]+)`", page.text)}

    assert {"demo", "test"} <= named
    assert named <= targets

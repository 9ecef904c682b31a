"""Models trained in PyTorch for a moment, and both of its exports: what is compared is the ONNX file with PyTorch."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from limits.candidates import Answers, Source

__all__ = ["EXPORTS", "export_source"]

_STEPS = 60
_PICTURE, _TOKENS, _WORDS = 16, 12, 40


@dataclass(frozen=True, kw_only=True, slots=True)
class Export:
    """A module, the rows that it takes, and what it is trained on.

    Attributes:
        build: Makes the module, given torch.
        rows: Makes rows, given how many and a seed.
        outputs: The names of its outputs.
        loss: The loss of its outputs on rows, given torch.
    """

    build: Callable[[Any], Any]
    rows: Callable[[int, int], Answers]
    outputs: tuple[str, ...]
    loss: Callable[[Any, Any, Mapping[str, Any]], Any]


def _table(count: int, seed: int) -> Answers:
    return {"x": np.random.default_rng(seed).standard_normal((count, 12)).astype(np.float32)}


def _pictures(count: int, seed: int) -> Answers:
    random = np.random.default_rng(seed)
    grid = np.mgrid[:_PICTURE, :_PICTURE] / _PICTURE
    phase, angle = random.uniform(0, 6, (2, count, 1, 1))
    wave = np.sin(12 * (grid[0] * np.cos(angle) + grid[1] * np.sin(angle)) + phase)
    spots = np.exp(-40 * sum((grid[axis] - random.uniform(0.2, 0.8, (count, 1, 1))) ** 2 for axis in (0, 1)))
    noise = random.standard_normal((count, _PICTURE, _PICTURE))
    return {"x": np.stack([wave, 3 * spots, noise], axis=1).astype(np.float32)}


def _sentences(count: int, seed: int) -> Answers:
    random = np.random.default_rng(seed)
    tokens = np.cumsum(random.integers(0, 3, (count, _TOKENS)), axis=1) % _WORDS
    lengths = random.integers(4, _TOKENS + 1, (count, 1))
    return {"tokens": tokens, "mask": (np.arange(_TOKENS) < lengths).astype(np.float32)}


def _series(count: int, seed: int) -> Answers:
    random = np.random.default_rng(seed)
    steps = random.standard_normal((count, 24, 3)).cumsum(axis=1)
    return {"x": (steps + 100 * random.uniform(size=(count, 1, 3))).astype(np.float32)}


def _visits(count: int, seed: int) -> Answers:
    random = np.random.default_rng(seed)
    return {
        "user": random.integers(0, 200, count),
        "item": random.integers(0, 500, count),
        "x": random.lognormal(size=(count, 4)).astype(np.float32),
    }


def _mlp(torch: Any) -> Any:
    nn = torch.nn

    class Model(nn.Module):  # type: ignore[misc] # torch is not typed here
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Linear(12, 128), nn.BatchNorm1d(128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 64), nn.SiLU()
            )
            self.value, self.choice = nn.Linear(64, 2), nn.Linear(64, 5)

        def forward(self, x: Any) -> Any:
            hidden = self.body(x)
            return self.value(hidden) * 50 + 200, self.choice(hidden).softmax(-1)

    return Model()


def _mlp_loss(torch: Any, answers: Any, rows: Mapping[str, Any]) -> Any:
    value, choice = answers
    x = rows["x"]
    wanted = torch.stack([x[:, 0] * x[:, 1] * 50 + 200, x[:, 2].sin() * 80 + 200], 1)
    return ((value - wanted) / 50).square().mean() - choice[torch.arange(len(x)), x[:, :5].argmax(1)].log().mean()


def _cnn(torch: Any) -> Any:
    nn = torch.nn

    class Model(nn.Module):  # type: ignore[misc] # torch is not typed here
        def __init__(self) -> None:
            super().__init__()
            layers: list[Any] = []
            for before, after in ((3, 16), (16, 32), (32, 32)):
                layers += [nn.Conv2d(before, after, 3, padding=1, stride=2), nn.BatchNorm2d(after), nn.ReLU()]
            self.body, self.choice = nn.Sequential(*layers), nn.Linear(32, 4)
            self.mask = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 1, 3, padding=1))

        def forward(self, x: Any) -> Any:
            features = self.body(x)
            pooled = features.mean((2, 3))
            unit = nn.functional.normalize(pooled, dim=-1)
            logits = self.choice(pooled)
            return logits, logits.softmax(-1), unit, features, self.mask(x).sigmoid()

    return Model()


def _cnn_loss(torch: Any, answers: Any, rows: Mapping[str, Any]) -> Any:
    logits, _, _, _, mask = answers
    x = rows["x"]
    sides = x[:, 1].mean(1).argmax(-1) // (_PICTURE // 4)
    spots = (x[:, 1:2] > 1.5).float()  # noqa: PLR2004 - half of a spot's height
    binary = torch.nn.functional.binary_cross_entropy(mask, spots)
    return torch.nn.functional.cross_entropy(logits, sides) + 3 * binary


def _bert(torch: Any) -> Any:
    nn, width, heads = torch.nn, 48, 4

    class Layer(nn.Module):  # type: ignore[misc] # torch is not typed here
        def __init__(self) -> None:
            super().__init__()
            self.parts, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide, self.back = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

        def forward(self, x: Any, mask: Any) -> Any:
            parts = self.parts(x).reshape(x.shape[0], _TOKENS, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            scores = parts[0] @ parts[1].transpose(-1, -2) / (width // heads) ** 0.5
            weights = (scores + (1 - mask[:, None, None, :]) * -1e4).softmax(-1)
            seen = (weights @ parts[2]).transpose(1, 2).reshape(x.shape[0], _TOKENS, width)
            x = self.first(x + self.out(seen))
            return self.second(x + self.back(nn.functional.gelu(self.wide(x)))), weights

    class Model(nn.Module):  # type: ignore[misc] # torch is not typed here
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(_WORDS, width), nn.Parameter(torch.randn(_TOKENS, width) * 0.3)
            self.layers = nn.ModuleList([Layer(), Layer()])
            self.pool, self.next, self.rate = nn.Linear(width, width), nn.Linear(width, _WORDS), nn.Linear(width, 1)

        def forward(self, tokens: Any, mask: Any) -> Any:
            x = self.words(tokens) + self.places
            weights = None
            for layer in self.layers:
                x, weights = layer(x, mask)
            pooled = self.pool(x[:, 0]).tanh()
            return x, self.next(x), pooled, weights, (self.rate(pooled) - 5).sigmoid()

    return Model()


def _bert_loss(torch: Any, answers: Any, rows: Mapping[str, Any]) -> Any:
    _, following, _, _, rate = answers
    tokens = rows["tokens"]
    loss = torch.nn.functional.cross_entropy(following[:, :-1].transpose(1, 2), tokens[:, 1:])
    return loss + torch.nn.functional.binary_cross_entropy(rate[:, 0], (tokens[:, 3] == 0).float())


def _lstm(torch: Any) -> Any:
    nn = torch.nn

    class Model(nn.Module):  # type: ignore[misc] # torch is not typed here
        def __init__(self) -> None:
            super().__init__()
            self.body, self.out = nn.LSTM(3, 32, batch_first=True), nn.Linear(32, 3 * 4)

        def forward(self, x: Any) -> Any:
            last, scale = x[:, -1:], x.std(1, keepdim=True) + 0.1
            hidden = self.body((x - last) / scale)[0][:, -1]
            steps = self.out(hidden).reshape(x.shape[0], 4, 3)
            return last + steps * scale

    return Model()


def _lstm_loss(torch: Any, answers: Any, rows: Mapping[str, Any]) -> Any:
    x = rows["x"]
    return (answers - (x[:, -1:] + 0.3 * (x[:, -1:] - x[:, -5:-4]))).square().mean() / torch.tensor(10.0)


def _recommender(torch: Any) -> Any:
    nn = torch.nn

    class Model(nn.Module):  # type: ignore[misc] # torch is not typed here
        def __init__(self) -> None:
            super().__init__()
            self.users, self.items = nn.Embedding(200, 16), nn.Embedding(500, 16)
            self.top = nn.Sequential(nn.Linear(37, 64), nn.ReLU(), nn.Linear(64, 2))

        def forward(self, user: Any, item: Any, x: Any) -> Any:
            left, right = self.users(user), self.items(item)
            dot = (left * right).sum(-1, keepdim=True)
            click, spend = self.top(torch.cat([left, right, dot, x.log1p()], -1)).split(1, -1)
            click = (click - 6).sigmoid()
            return torch.cat([click, spend.exp() * 30, click * spend.exp() * 30], -1), dot

    return Model()


def _recommender_loss(torch: Any, answers: Any, rows: Mapping[str, Any]) -> Any:
    click, spend = answers[0][:, 0], answers[0][:, 1]
    is_click = ((rows["user"] + rows["item"]) % 50 == 0).float()
    rate = torch.nn.functional.binary_cross_entropy(click, is_click)
    return rate + (spend.log() - (30 * rows["x"][:, 0]).log()).square().mean()


EXPORTS: Mapping[str, Export] = {
    "torch-mlp": Export(build=_mlp, rows=_table, outputs=("value", "choice"), loss=_mlp_loss),
    "torch-cnn": Export(
        build=_cnn,
        rows=_pictures,
        outputs=("logits", "probabilities", "embedding", "features", "mask"),
        loss=_cnn_loss,
    ),
    "torch-bert": Export(
        build=_bert, rows=_sentences, outputs=("hidden", "next", "pooled", "weights", "rate"), loss=_bert_loss
    ),
    "torch-lstm": Export(build=_lstm, rows=_series, outputs=("forecast",), loss=_lstm_loss),
    "torch-recommender": Export(
        build=_recommender, rows=_visits, outputs=("tasks", "affinity"), loss=_recommender_loss
    ),
}


def export_source(name: str, folder: Path, rows: int, seed: int) -> Source:
    """Return a model trained in PyTorch, its ONNX file by the newer exporter, and that by the older one."""
    # The folder `triton` beside this one is not a compiler that PyTorch could use.
    sys.modules.setdefault("triton", None)  # type: ignore[arg-type]
    import torch

    torch.manual_seed(seed)
    made = EXPORTS[name]
    module = made.build(torch)
    _train(torch, module, made, seed)
    module.eval()
    inputs, calibration = made.rows(rows, 100 + seed), made.rows(rows, 900 + seed)
    tensors = tuple(torch.from_numpy(array) for array in inputs.values())

    def ask(rows: Answers) -> Answers:
        with torch.no_grad():
            answers = module(*(torch.from_numpy(rows[key]) for key in inputs))
        answers = answers if isinstance(answers, tuple) else (answers,)
        return {key: np.asarray(answer.numpy()) for key, answer in zip(made.outputs, answers, strict=True)}

    paths = []
    for is_new, opset in ((True, 18), (False, 13)):
        paths.append(folder / f"model-{opset}.onnx")
        batch = {name: {0: "batch"} for name in (*inputs, *made.outputs)}
        shapes = tuple({0: torch.export.Dim("batch")} for _ in inputs)
        how: dict[str, Any] = {"dynamic_shapes": shapes} if is_new else {"dynamic_axes": batch}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module,
                tensors,
                str(paths[-1]),
                input_names=list(inputs),
                output_names=list(made.outputs),
                opset_version=opset,
                dynamo=is_new,
                external_data=False,
                verbose=False,
                **how,
            )
    return Source(
        path=paths[0],
        inputs=inputs,
        calibration=calibration,
        folder=folder,
        others={"older-export": paths[1]},
        ask=ask,
    )


def _train(torch: Any, module: Any, made: Export, seed: int) -> None:
    optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
    rows = {key: torch.from_numpy(array) for key, array in made.rows(512, 500 + seed).items()}
    for _ in range(_STEPS):
        optimizer.zero_grad()
        made.loss(torch, module(*rows.values()), rows).backward()
        optimizer.step()

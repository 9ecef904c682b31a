"""The models of `gate_cost.py`, with samples: a BERT of two layers, a small decoder like GPT-2, and a small CNN.

They are built by hand, with random weights that spread their answers, so that nothing besides PyTorch is needed. Run as
a script with the name of a model and a path, this writes the samples and prints the CPU seconds of plain inference over
them, twice: with the first calls, and without them.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

BERT_VOCABULARY = 30522
GPT_VOCABULARY = 50257
TINY_VOCABULARY = 1000
ROWS = 128


class Layer(torch.nn.Module):
    """One layer of a transformer, its norms before or after as BERT and GPT-2 have them."""

    def __init__(self, width: int, heads: int, *, is_causal: bool) -> None:
        """Make the layer."""
        super().__init__()
        self.heads, self.is_causal = heads, is_causal
        self.projected = torch.nn.Linear(width, 3 * width)
        self.mixed = torch.nn.Linear(width, width)
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)])
        self.wide, self.narrow = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def attended(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return what each position makes of those that it may see."""
        batch, length, width = hidden.shape
        parts = self.projected(hidden).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = parts[0] @ parts[1].transpose(-1, -2) / math.sqrt(width // self.heads) + mask
        return self.mixed((scores.softmax(-1) @ parts[2]).transpose(1, 2).reshape(batch, length, width))

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the hidden states after this layer."""
        if self.is_causal:
            hidden = hidden + self.attended(self.norms[0](hidden), mask)
            return hidden + self.narrow(torch.nn.functional.gelu(self.wide(self.norms[1](hidden))))
        hidden = self.norms[0](hidden + self.attended(hidden, mask))
        return self.norms[1](hidden + self.narrow(torch.nn.functional.gelu(self.wide(hidden))))


class Bert(torch.nn.Module):
    """An encoder with a mask of padding and two logits."""

    def __init__(self) -> None:
        """Make the model."""
        super().__init__()
        width = 256
        self.words, self.places = torch.nn.Embedding(BERT_VOCABULARY, width), torch.nn.Embedding(512, width)
        self.layers = torch.nn.ModuleList([Layer(width, 4, is_causal=False) for _ in range(2)])
        self.logits = torch.nn.Linear(width, 2)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        hidden = self.words(input_ids) + self.places(places)
        mask = (1.0 - attention_mask[:, None, None, :].float()) * -1e9
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return self.logits(hidden[:, 0])


class Gpt(torch.nn.Module):
    """A causal decoder whose answer is a logit of every word at every position."""

    def __init__(self) -> None:
        """Make the model."""
        super().__init__()
        width = 128
        self.words, self.places = torch.nn.Embedding(GPT_VOCABULARY, width), torch.nn.Embedding(1024, width)
        self.layers = torch.nn.ModuleList([Layer(width, 4, is_causal=True) for _ in range(3)])
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        hidden = self.words(input_ids) + self.places(places)
        mask = torch.where(places[None, :] > places[:, None], -1e9, 0.0)
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return self.norm(hidden) @ self.words.weight.T


def cnn_module() -> torch.nn.Module:
    """Return a CNN of four convolutions over pictures of any size, with ten logits."""
    widths = [3, 16, 32, 64, 64]
    layers: list[torch.nn.Module] = []
    for at, (before, after) in enumerate(itertools.pairwise(widths)):
        layers += [torch.nn.Conv2d(before, after, 3, stride=1 + at % 2, padding=1), torch.nn.BatchNorm2d(after)]
        layers += [torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 10))


def _lively(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """Return the module, always the same, with weights that make its answers differ from row to row."""
    generator = torch.manual_seed(0)
    module = make()
    with torch.no_grad():
        for value in module.parameters():
            if value.ndim > 1:
                value.copy_(torch.randn(value.shape, generator=generator) * 1.2 / math.sqrt(value[0].numel()))
    return module.eval()


def bert() -> torch.nn.Module:
    """Return the BERT."""
    return _lively(Bert)


def gpt() -> torch.nn.Module:
    """Return the decoder."""
    return _lively(Gpt)


def distilbert() -> torch.nn.Module:
    """Return a DistilBERT of transformers, of 457 kB: nearly all that it costs is what any model costs."""
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    config = DistilBertConfig(
        vocab_size=TINY_VOCABULARY, dim=64, hidden_dim=160, n_layers=1, n_heads=2, max_position_embeddings=128
    )
    return _lively(lambda: DistilBertForSequenceClassification(config))


def cnn() -> torch.nn.Module:
    """Return the CNN."""
    return _lively(cnn_module)


def bert_samples(vocabulary: int = BERT_VOCABULARY) -> list[dict[str, np.ndarray]]:
    """Return texts of 8 to 64 words, padded on the right to the longest of their batch."""
    random, found = np.random.default_rng(0), []
    for _ in range(ROWS // 16):
        lengths = random.integers(8, 65, size=16)
        real = np.arange(int(lengths.max())) < lengths[:, None]
        ids = np.where(real, random.integers(200, vocabulary, size=real.shape), 0)
        ids[:, 0] = 101
        found.append({"input_ids": ids, "attention_mask": real.astype(np.int64)})
    return found


def gpt_samples() -> list[dict[str, np.ndarray]]:
    """Return texts of one length a batch."""
    random = np.random.default_rng(0)
    lengths = random.integers(8, 25, size=ROWS // 8)
    return [{"input_ids": random.integers(0, GPT_VOCABULARY, size=(8, int(length)))} for length in lengths]


def cnn_samples() -> list[dict[str, np.ndarray]]:
    """Return pictures of 64 by 64, some brighter than others."""
    random = np.random.default_rng(0)
    pictures = random.standard_normal((2 * ROWS // 16, 16, 3, 64, 64)) * random.uniform(
        0.5, 2.0, size=(2 * ROWS // 16, 16, 1, 1, 1)
    )
    return [{"pixels": batch} for batch in pictures.astype(np.float32)]


def distilbert_samples() -> list[dict[str, np.ndarray]]:
    """Return texts as those of the BERT, of fewer words."""
    return bert_samples(TINY_VOCABULARY)


MODELS = {"bert": bert, "gpt": gpt, "cnn": cnn, "distilbert": distilbert}
SAMPLES = {"bert": bert_samples, "gpt": gpt_samples, "cnn": cnn_samples, "distilbert": distilbert_samples}


def save_samples(name: str, path: str) -> None:
    """Write the samples of a model, a case a batch."""
    batches = {f"b{at:03d}": batch for at, batch in enumerate(SAMPLES[name]())}
    np.savez(path, **{f"{case}/{key}": array for case, batch in batches.items() for key, array in batch.items()})


def main(name: str, path: str) -> None:
    """Write the samples, and print the CPU seconds of inference over them."""
    save_samples(name, path)
    model, found = MODELS[name](), list[float]()
    for _ in range(2):
        spent = 0.0
        for batch in SAMPLES[name]():
            tensors = {key: torch.from_numpy(array) for key, array in batch.items()}
            started = time.process_time()
            with torch.inference_mode():
                model(**tensors) if name == "distilbert" else model(*tensors.values())
            spent += time.process_time() - started
        found.append(spent)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Models by what their answers look like: probabilities, embeddings, boxes, tasks side by side, and the like."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from limits.net import Net
from numpy.typing import NDArray

__all__ = ["HEADS", "rows_for"]

_FEATURES = 16
Head = Callable[[Net], Mapping[str, str]]


def rows_for(name: str, count: int, seed: int) -> NDArray[np.float32]:
    """Return input rows for a model."""
    rows = np.random.default_rng(seed).standard_normal((count, _FEATURES)).astype(np.float32)
    if "huge-row" in name:
        rows[count // 3] *= 1000
    return rows


def _click(rate: float) -> Head:
    def build(net: Net) -> Mapping[str, str]:
        logit = net.head(net.trunk(), [1.5], [float(np.log(rate / (1 - rate)))])
        return {"p_click": net.node("Sigmoid", logit)}

    return build


def _two_classes(net: Net) -> Mapping[str, str]:
    p = net.node("Sigmoid", net.head(net.trunk(), [2.0], [-2.0]))
    other = net.node("Sub", net.constant(np.array([1.0])), p)
    return {"probabilities": net.joined(other, p)}


def _softmax(classes: int, spread: float, width: int = 64) -> Head:
    def build(net: Net) -> Mapping[str, str]:
        logits = net.head(net.trunk(width), np.full(classes, spread), np.zeros(classes))
        return {"probabilities": net.node("Softmax", logits, axis=-1)}

    return build


def _confident(classes: int, margin: float) -> Head:
    """Each row is near one of the classes, as what a trained classifier sees."""

    def build(net: Net) -> Mapping[str, str]:
        features = net.hidden(net.trunk(), 64, "")

        def measured() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            plain = net.as_drawn(features)
            norms = np.linalg.norm(plain, axis=1, keepdims=True)
            prototypes = np.random.default_rng(5).standard_normal((classes, plain.shape[1]))
            few = min(classes, len(plain) // 2)
            prototypes[:few] = (plain / norms)[:few]
            prototypes /= np.linalg.norm(prototypes, axis=1, keepdims=True)
            return prototypes.T * margin / norms.mean(), np.zeros(classes)

        logits = net.product(features, measured)
        return {"probabilities": net.node("Softmax", logits, axis=-1), "logits": logits}

    return build


def _embedding(width: int) -> Head:
    def build(net: Net) -> Mapping[str, str]:
        value = net.head(net.trunk(128), np.ones(width), np.zeros(width))
        norm = net.node("ReduceL2", value, axes=[-1], keepdims=1)
        return {"embedding": net.node("Div", value, norm)}

    return build


def _sparse(share: float, columns: int) -> Head:
    def build(net: Net) -> Mapping[str, str]:
        middle = {0.95: -1.645, 0.8: -0.842, 0.5: 0.0}[share]
        value = net.head(net.trunk(), np.ones(columns), np.full(columns, middle))
        return {"features": net.node("Relu", value)}

    return build


def _mask(net: Net) -> Mapping[str, str]:
    """Scores that a mask sets to 0, in other places in each row."""
    scores = net.head(net.trunk(), np.full(12, 0.3), np.full(12, 2.0))
    seen = net.node("Greater", net.head(net.trunk(32), np.ones(12), np.full(12, -0.7)), net.constant(np.array([0.0])))
    return {"scores": net.node("Mul", scores, net.node("Cast", seen, to=onnx.TensorProto.FLOAT))}


def _exponential(spread: float) -> Head:
    def build(net: Net) -> Mapping[str, str]:
        return {"amount": net.node("Exp", net.head(net.trunk(), np.full(4, spread), [0.0, 1.0, -3.0, 3.0]))}

    return build


def _plain(net: Net) -> Mapping[str, str]:
    return {"y": net.head(net.trunk(), [1.0, 0.3, 3.0], [0.0, 0.0, 1.0])}


def _difference(net: Net) -> Mapping[str, str]:
    """Twins whose answers are a thousand times their difference."""
    trunk = net.trunk()
    large = net.head(trunk, [1000.0, 300.0], [5000.0, 0.0])
    close = net.node("Add", large, net.head(trunk, [1.0, 1.0], [0.0, 3.0]))
    # Not folded: the twin goes through arithmetic of its own.
    twin = net.scaled(net.scaled(close, [3.0, 7.0]), [1 / 3, 1 / 7])
    return {"uplift": net.node("Sub", twin, large)}


def _log_ratio(net: Net) -> Mapping[str, str]:
    trunk = net.trunk()
    logit = net.head(trunk, [1.0], [-1.0])
    moved = net.node("Add", logit, net.head(trunk, [0.01], [0.0]))
    p, q = net.node("Sigmoid", logit), net.node("Sigmoid", moved)
    return {"log_ratio": net.node("Sub", net.node("Log", q), net.node("Log", p))}


def _uplift(net: Net) -> Mapping[str, str]:
    """The difference of two probabilities that are nearly the same."""
    trunk = net.trunk()
    logit = net.head(trunk, [1.0], [-1.0])
    moved = net.node("Add", logit, net.head(trunk, [0.02], [0.01]))
    return {"uplift": net.node("Sub", net.node("Sigmoid", moved), net.node("Sigmoid", logit))}


def _boxes(is_last: bool) -> Head:  # noqa: FBT001 - one of two layouts
    def build(net: Net) -> Mapping[str, str]:
        places, trunk = 20, net.trunk(96)
        corners = net.shaped(net.head(trunk, np.full(places * 2, 150.0), np.full(places * 2, 320.0)), -1, places, 2)
        sizes = net.node("Exp", net.head(trunk, np.full(places * 2, 0.7), np.full(places * 2, 3.5)))
        logits = net.head(trunk, np.full(places * 2, 1.5), np.full(places * 2, -5.0))
        scores = net.shaped(net.node("Sigmoid", logits), -1, places, 2)
        boxes = net.joined(corners, net.shaped(sizes, -1, places, 2), scores)
        return {"detections": boxes if is_last else net.node("Transpose", boxes, perm=[0, 2, 1])}

    return build


_SIZES = (1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e7)


def _tasks(net: Net) -> Mapping[str, str]:
    return {"tasks": net.scaled(net.head(net.trunk(), np.ones(6), np.full(6, 0.5)), _SIZES)}


def _tasks_over_time(net: Net) -> Mapping[str, str]:
    value = net.shaped(net.head(net.trunk(), np.ones(48), np.full(48, 0.5)), -1, 8, 6)
    return {"tasks": net.scaled(value, _SIZES)}


def _rate_and_revenue(net: Net) -> Mapping[str, str]:
    trunk = net.trunk()
    rate = net.scaled(net.node("Sigmoid", net.head(trunk, [1.0], [0.0])), [1e-5])
    return {"y": net.joined(rate, net.head(trunk, [20.0], [100.0]))}


def _bounded(kind: str) -> Head:
    def build(net: Net) -> Mapping[str, str]:
        trunk = net.trunk(activation="Tanh" if kind == "Tanh" else "Relu")
        return {"y": net.node(kind, net.head(trunk, [1.0, 0.01, 3.0], [0.0, 0.0, 0.0]))}

    return build


def _offset(net: Net) -> Mapping[str, str]:
    return {"price": net.head(net.trunk(), [0.1], [1000.0])}


def _counts(net: Net) -> Mapping[str, str]:
    return {"rates": net.node("Exp", net.head(net.trunk(), [1.0, 0.5, 1.0], [4.0, 6.0, -2.0]))}


def _softplus(net: Net) -> Mapping[str, str]:
    return {"intensity": net.node("Softplus", net.head(net.trunk(), [1.0, 2.0, 1.0], [-4.0, 0.0, 5.0]))}


def _tags(net: Net) -> Mapping[str, str]:
    logits = net.shaped(net.head(net.trunk(96), np.full(60, 2.0), np.zeros(60)), -1, 12, 5)
    return {
        "log_probabilities": net.node("LogSoftmax", logits, axis=-1),
        "probabilities": net.node("Softmax", logits, axis=-1),
    }


def _masked_logits(net: Net) -> Mapping[str, str]:
    logits = net.head(net.trunk(), np.full(8, 2.0), np.zeros(8))
    seen = net.node("Greater", net.head(net.trunk(32), np.ones(8), np.full(8, 0.5)), net.constant(np.array([0.0])))
    return {"logits": net.node("Where", seen, logits, net.constant(np.array([-1e9])))}


def _latent(net: Net) -> Mapping[str, str]:
    trunk = net.trunk(activation="Tanh")
    log_variance = net.head(trunk, np.full(8, 1.0), np.full(8, -4.0))
    deviation = net.node("Exp", net.scaled(log_variance, [0.5]))
    return {"mean": net.head(trunk, np.full(8, 0.2), np.zeros(8)), "deviation": deviation}


def _anomaly(net: Net) -> Mapping[str, str]:
    """The error of a reconstruction that is nearly right: a square of small differences."""
    far = net.head(net.trunk(), np.full(_FEATURES, 0.03), np.zeros(_FEATURES))
    again = net.node("Add", "x", far)
    error = net.node("Sub", net.scaled(net.scaled(again, [3.0]), [1 / 3]), "x")
    squares = net.node("Mul", error, error)
    return {"error": net.node("ReduceMean", squares, axes=[-1], keepdims=1)}


def _similarity(net: Net) -> Mapping[str, str]:
    trunk = net.trunk(128)
    sides = []
    for spread in (1.0, 0.7):
        value = net.head(trunk, np.full(32, spread), np.full(32, 0.3))
        sides.append(net.node("Div", value, net.node("ReduceL2", value, axes=[-1], keepdims=1)))
    product = net.node("Mul", *sides)
    return {"similarity": net.node("ReduceSum", product, net.constant(np.array([-1])), keepdims=1)}


def _deep(net: Net) -> Mapping[str, str]:
    return {"y": net.head(net.trunk(256, 8), np.ones(4), np.zeros(4))}


def _normalised(net: Net) -> Mapping[str, str]:
    value = net.head(net.trunk(128), np.full(64, 3.0), np.zeros(64))
    scale, bias = net.constant(1 + 0.2 * net.normal(64)), net.constant(0.1 * net.normal(64))
    return {"hidden": net.node("LayerNormalization", value, scale, bias, axis=-1)}


def _mixture(net: Net) -> Mapping[str, str]:
    trunk = net.trunk()
    weights = net.node("Softmax", net.head(trunk, np.full(3, 1.0), [2.0, 0.0, -4.0]), axis=-1)
    means = net.head(trunk, [5.0, 5.0, 5.0], [10.0, 20.0, 30.0])
    deviations = net.node("Exp", net.head(trunk, np.full(3, 0.4), np.zeros(3)))
    return {"weights": weights, "means": means, "deviations": deviations}


def _value_and_risk(net: Net) -> Mapping[str, str]:
    """Expected loss: a small probability times a large amount, beside both."""
    trunk = net.trunk()
    p = net.node("Sigmoid", net.head(trunk, [1.2], [-6.0]))
    amount = net.node("Exp", net.head(trunk, [0.8], [8.0]))
    return {"y": net.joined(p, amount, net.node("Mul", p, amount))}


def _quantiles(net: Net) -> Mapping[str, str]:
    trunk = net.trunk()
    low = net.head(trunk, [10.0], [50.0])
    steps = net.node("Softplus", net.head(trunk, [1.0, 1.0], [-1.0, 1.0]))
    middle, high = (net.column(steps, place) for place in (0, 1))
    second = net.node("Add", low, middle)
    return {"quantiles": net.joined(low, second, net.node("Add", second, high))}


HEADS: Mapping[str, Head] = {
    **{f"click-1e-{power}": _click(10.0**-power) for power in range(1, 7)},
    "two-classes": _two_classes,
    "softmax-2": _softmax(2, 1.0),
    "softmax-10": _softmax(10, 1.0),
    "softmax-10-wide": _softmax(10, 4.0),
    "softmax-1000": _softmax(1000, 1.0),
    "softmax-1000-wide": _softmax(1000, 3.0, 128),
    "confident-2": _confident(2, 8.0),
    "confident-10": _confident(10, 15.0),
    "confident-1000": _confident(1000, 25.0),
    "embedding-64": _embedding(64),
    "embedding-256": _embedding(256),
    "relu-95": _sparse(0.95, 32),
    "relu-80": _sparse(0.8, 8),
    "relu-50": _sparse(0.5, 8),
    "masked-scores": _mask,
    "heavy-tail-2": _exponential(2.0),
    "heavy-tail-4": _exponential(4.0),
    "plain": _plain,
    "huge-row": _plain,
    "a-minus-b": _difference,
    "log-ratio": _log_ratio,
    "uplift": _uplift,
    "boxes-last": _boxes(is_last=True),
    "boxes-first": _boxes(is_last=False),
    "tasks": _tasks,
    "tasks-over-time": _tasks_over_time,
    "rate-and-revenue": _rate_and_revenue,
    "tanh": _bounded("Tanh"),
    "erf": _bounded("Erf"),
    "offset-1000": _offset,
    "counts": _counts,
    "softplus": _softplus,
    "tags": _tags,
    "masked-logits": _masked_logits,
    "latent": _latent,
    "anomaly": _anomaly,
    "similarity": _similarity,
    "deep": _deep,
    "layer-norm": _normalised,
    "mixture": _mixture,
    "expected-loss": _value_and_risk,
    "quantiles": _quantiles,
}

"""Forests of scikit-learn and their ONNX files: a row near a split may fall on either side of it, and then jumps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from limits.candidates import Answers, Source
from numpy.typing import NDArray

__all__ = ["TREES", "tree_source"]

_FEATURES = 8
_HOWS = ("export", "unoptimised", "one-at-a-time")


def _classifier() -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(n_estimators=40, max_depth=7, random_state=0)


def _regressor() -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(n_estimators=40, max_depth=8, random_state=0)


def _boosted() -> Any:
    from sklearn.ensemble import GradientBoostingClassifier

    return GradientBoostingClassifier(n_estimators=60, random_state=0)


def _scaled() -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), _classifier())


def _scaled_regressor() -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), _boosted_regressor())


def _boosted_regressor() -> Any:
    from sklearn.ensemble import GradientBoostingRegressor

    return GradientBoostingRegressor(n_estimators=80, max_depth=4, random_state=0)


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression())


# What is fitted, what the columns hold, and whether it is to tell classes apart.
TREES: Mapping[str, tuple[Callable[[], Any], str, bool]] = {
    "forest": (_classifier, "normal", True),
    "forest-values": (_regressor, "normal", False),
    "boosted": (_boosted, "normal", True),
    "boosted-values": (_boosted_regressor, "prices", False),
    "scaled-forest": (_scaled, "prices", True),
    "scaled-boosted": (_scaled_regressor, "prices", False),
    "logistic-rare": (_logistic, "normal", True),
}


def _rows(kind: str, count: int, seed: int) -> NDArray[np.float32]:
    random = np.random.default_rng(seed)
    if kind == "prices":
        # Amounts in cents. A tree splits half-way between two of them, which is another amount half of the time: a row
        # that holds it falls on either side, by how it was scaled.
        return (random.integers(0, 9000, (count, _FEATURES)) * 0.01).astype(np.float32)
    return random.standard_normal((count, _FEATURES)).astype(np.float32)


def tree_source(name: str, folder: Path, rows: int, seed: int) -> Source:
    """Return a fitted estimator, and its ONNX file."""
    from skl2onnx import to_onnx

    make, kind, is_classes = TREES[name]
    train = _rows(kind, 1500, 500 + seed)
    unit = (train - train.mean(axis=0)) / train.std(axis=0)
    score = unit[:, 0] * unit[:, 1] + unit[:, 2] - 0.5 * np.abs(unit[:, 3])
    threshold = 3.5 if "rare" in name else 0.0
    fitted = make().fit(train, (score > threshold).astype(int) if is_classes else 100 + 20 * score)
    inputs = _rows(kind, rows, 100 + seed)
    options = {"zipmap": False} if is_classes else None
    model = to_onnx(fitted, train[:1], options=options, target_opset=17)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())

    def ask(given: Answers) -> Answers:
        if not is_classes:
            return {"variable": fitted.predict(given["X"]).astype(np.float32)[:, None]}
        probabilities = fitted.predict_proba(given["X"]).astype(np.float32)
        return {"label": fitted.predict(given["X"]), "probabilities": probabilities}

    given: Answers = {"X": inputs}
    return Source(path=path, inputs=given, calibration=given, folder=folder, ask=ask, hows=_HOWS)

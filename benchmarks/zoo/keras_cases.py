"""Architectures of Keras and keras-hub, small and with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from case import KERAS_TARGETS, Case, Drawn, ids, mask, normal, uniform
from lively import lively_keras, settled_keras

__all__ = ["KERAS_CASES"]


def model(make: Callable[[Any, Any], Any]) -> Callable[[], Any]:
    """Return what builds a model: `make` is given keras and keras.layers, which are imported when it is called."""

    def build() -> Any:
        import keras

        keras.utils.set_random_seed(0)
        return lively_keras(make(keras, keras.layers))

    return build


def application(name: str, size: int = 32, **options: Any) -> Callable[[], Any]:
    """Return what builds one of Keras' own picture models."""
    build = model(
        lambda keras, _: getattr(keras.applications, name)(
            weights=None, input_tensor=keras.Input((size, size, 3), name="picture"), classes=5, **options
        )
    )

    def pictures() -> np.ndarray:
        return np.random.default_rng(0).uniform(0, 255, (16, size, size, 3)).astype(np.float32)

    return settled_keras(build, pictures)


def _mlp(keras: Any, layers: Any) -> Any:
    scale = layers.Normalization(mean=[0.1] * 6, variance=[1.3] * 6)
    x = keras.Input((6,), name="x")
    return keras.Model(
        x, layers.Dense(3, activation="softmax", name="y")(layers.Dense(16, activation="gelu")(scale(x)))
    )


def _bilstm(keras: Any, layers: Any) -> Any:
    tokens = keras.Input((12,), dtype="int32", name="tokens")
    x = layers.Embedding(40, 8, mask_zero=True)(tokens)
    x = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(x)
    return keras.Model(tokens, layers.Dense(2, name="score")(layers.GRU(8)(x)))


def _convolutions(keras: Any, layers: Any) -> Any:
    picture = keras.Input((16, 16, 3), name="picture")
    x = layers.Rescaling(2.0, -1.0)(picture)
    x = layers.SeparableConv2D(8, 3, strides=2, padding="same", activation="swish")(x)
    x = layers.GroupNormalization(2)(layers.Conv2DTranspose(8, 3, strides=2, padding="same")(x))
    return keras.Model(
        picture,
        layers.Conv2D(2, 1, activation="sigmoid", name="segments")(layers.UpSampling2D(2, interpolation="bilinear")(x)),
    )


def _transformer(keras: Any, layers: Any) -> Any:
    x = keras.Input((10, 4), name="series")
    h = layers.Dense(16)(x)
    h = layers.LayerNormalization()(h + layers.MultiHeadAttention(2, 8)(h, h, use_causal_mask=True))
    return keras.Model(
        x, layers.Dense(1, name="next")(layers.GlobalAveragePooling1D()(layers.Dense(16, activation="relu")(h)))
    )


def _wide_and_deep(keras: Any, layers: Any) -> Any:
    age, kind = keras.Input((1,), name="age"), keras.Input((1,), dtype="int32", name="kind")
    bucket = layers.CategoryEncoding(5, output_mode="one_hot")(layers.Discretization([20.0, 35.0, 50.0, 65.0])(age))
    deep = layers.Concatenate()([layers.Flatten()(layers.Embedding(12, 4)(kind)), bucket, age / 50.0])
    return keras.Model(
        [age, kind], layers.Dense(1, activation="sigmoid", name="buys")(layers.Dense(8, activation="elu")(deep))
    )


def _conv_lstm(keras: Any, layers: Any) -> Any:
    clip = keras.Input((4, 8, 8, 2), name="clip")
    return keras.Model(clip, layers.Conv2D(1, 1, name="frame")(layers.ConvLSTM2D(4, 3, padding="same")(clip)))


def _wave(keras: Any, layers: Any) -> Any:
    wave = keras.Input((64, 1), name="wave")
    x = layers.Conv1D(8, 5, dilation_rate=2, padding="causal", activation="leaky_relu")(wave)
    x = layers.BatchNormalization()(layers.MaxPooling1D(2)(x))
    return keras.Model(
        wave, layers.Dense(3, name="word")(layers.GlobalMaxPooling1D()(layers.PReLU(shared_axes=[1])(x)))
    )


def _bert(keras: Any, layers: Any) -> Any:
    import keras_hub

    return keras_hub.models.BertBackbone(
        vocabulary_size=99,
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=32,
        max_sequence_length=32,
        dropout=0.0,
    )


def _gemma(keras: Any, layers: Any) -> Any:
    import keras_hub

    return keras_hub.models.GemmaBackbone(
        vocabulary_size=99,
        num_layers=1,
        num_query_heads=2,
        num_key_value_heads=1,
        hidden_dim=16,
        intermediate_dim=32,
        head_dim=8,
    )


def _ints(drawn: Drawn) -> Drawn:
    return Drawn(drawn.shape, lambda random, size: drawn.draw(random, size).astype(np.int32))


def case(name: str, family: str, make: Callable[[], Any], inputs: Any, **rest: Any) -> Case:
    """Return a case of Keras."""
    return Case(name=name, family=family, build=make, inputs=inputs, targets=KERAS_TARGETS, **rest)


KERAS_CASES = [
    case("keras-mlp", "tabular", model(_mlp), {"x": normal("batch 6")}),
    case("keras-bilstm", "recurrent", model(_bilstm), {"tokens": _ints(ids(40, "batch 12"))}),
    case("keras-segmentation", "segmentation", model(_convolutions), {"picture": uniform("batch 16 16 3")}),
    case("keras-transformer", "time series", model(_transformer), {"series": normal("batch 10 4")}),
    case(
        "keras-wide-and-deep",
        "recommender",
        model(_wide_and_deep),
        {"age": uniform("batch 1", 15, 80), "kind": _ints(ids(12, "batch 1"))},
    ),
    case("keras-conv-lstm", "video", model(_conv_lstm), {"clip": normal("batch 4 8 8 2")}),
    case("keras-wave", "speech", model(_wave), {"wave": normal("batch 64 1")}),
    case(
        "keras-mobilenet-v3",
        "picture classifier",
        application("MobileNetV3Small", minimalistic=False),
        {"picture": uniform("batch 32 32 3", 0, 255)},
    ),
    case(
        "keras-efficientnet",
        "picture classifier",
        application("EfficientNetB0"),
        {"picture": uniform("batch 32 32 3", 0, 255)},
    ),
    case(
        "keras-hub-bert",
        "text encoder",
        model(_bert),
        {"token_ids": _ints(ids(99)), "padding_mask": _ints(mask()), "segment_ids": _ints(ids(2))},
        sizes={"sequence": (4, 24)},
    ),
    case(
        "keras-hub-gemma",
        "decoder",
        model(_gemma),
        {"token_ids": _ints(ids(99)), "padding_mask": _ints(mask())},
        sizes={"sequence": (4, 24)},
    ),
]

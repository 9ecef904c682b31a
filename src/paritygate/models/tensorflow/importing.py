"""Import TensorFlow and Keras: quiet, and Keras on the TensorFlow backend."""

from __future__ import annotations

import os
from typing import Any

from paritygate.backends import require_backend
from paritygate.errors import BackendError


def import_tensorflow() -> Any:  # noqa: ANN401 - the module, which has no types
    """Return the module `tensorflow`; raise MissingBackendError if it is not installed."""
    require_backend("tensorflow")
    # TensorFlow reads them at its first import; the user's values stay.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    return tf


def import_keras() -> Any:  # noqa: ANN401 - the module, which has no types
    """Return the module `keras`, version 3, on the TensorFlow backend.

    Raises:
        BackendError: Keras was imported on another backend, or is older than version 3.
    """
    import_tensorflow()
    import keras

    if int(keras.__version__.split(".")[0]) < 3:  # noqa: PLR2004 - Keras 3 is the one with backends
        msg = f"Keras {keras.__version__} is installed; version 3 is needed"
        raise BackendError(msg, hint="pip install 'keras>=3'")
    if keras.backend.backend() != "tensorflow":
        msg = f"Keras runs on the backend {keras.backend.backend()!r}, not on tensorflow"
        raise BackendError(msg, hint="export KERAS_BACKEND=tensorflow")
    return keras

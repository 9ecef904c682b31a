"""What the shadow of a view runs in Triton's python backend in place of a backend in C++: ONNX Runtime, by its package.

It is copied beside the model as `model.py` and not a part of the package. Before it opens a file, it holds the file's
digest against the one that the configuration names.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

# The backend's own Python does not look where packages are installed.
sys.path[:0] = os.environ["PARITYGATE_SHADOW_PATH"].split(os.pathsep)

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils


def digest_of(path):
    """Return the digest of a file, as releases have it."""
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


class TritonPythonModel:
    """One instance of the model: the interface is that of the python backend."""

    def initialize(self, args):
        """Check the files' digests, and open the model."""
        config = json.loads(args["model_config"])
        self.version = args["model_version"]
        folder = Path(args["model_repository"]) / self.version
        for name, wanted in json.loads(config["parameters"]["digests"]["string_value"]).items():
            if digest_of(folder / name) != wanted:
                msg = f"{name} is corrupt: digest mismatch"
                raise pb_utils.TritonModelException(msg)
        path = folder / "model.onnx"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(path / path.name if path.is_dir() else path), options)
        self.inputs = [item["name"] for item in config["input"]]
        self.outputs = [item["name"] for item in config["output"]]
        self.is_batched = int(config.get("max_batch_size", 0)) > 0
        # As a device would take them: milliseconds a call, and a row.
        self.waits = json.loads(config["parameters"].get("waits_ms", {}).get("string_value", "[0, 0]"))
        self.log = os.environ.get("PARITYGATE_SHADOW_LOG")
        self.say(event="loaded")

    def execute(self, requests):
        """Answer requests: those of one shape in one call of the model, as a backend in C++ does."""
        feeds = [{n: pb_utils.get_input_tensor_by_name(r, n).as_numpy() for n in self.inputs} for r in requests]
        self.say(event="executed", requests=len(feeds), rows=sum(len(feed[self.inputs[0]]) for feed in feeds))
        shapes = {tuple(feed[name].shape[1:] for name in self.inputs) for feed in feeds}
        if self.is_batched and len(shapes) == 1:
            merged = self.run({name: np.concatenate([feed[name] for feed in feeds]) for name in self.inputs})
            ends = np.cumsum([len(feed[self.inputs[0]]) for feed in feeds])[:-1]
            answers = list(zip(*(np.split(array, ends) for array in merged), strict=True))
        else:
            answers = [self.run(feed) for feed in feeds]
        return [pb_utils.InferenceResponse(list(map(pb_utils.Tensor, self.outputs, answer))) for answer in answers]

    def run(self, feed):
        """Return the outputs of one call."""
        found = {name: np.char.decode(a.astype(bytes)) if a.dtype.kind in "OS" else a for name, a in feed.items()}
        rows = len(next(iter(found.values())))
        time.sleep((self.waits[0] + self.waits[1] * rows) / 1000)
        return self.session.run(self.outputs, found)

    def say(self, **event):
        """Note what was done, for those who look."""
        if self.log:
            with open(self.log, "a", encoding="utf-8") as stream:
                stream.write(json.dumps({"version": int(self.version), **event}) + "\n")

"""The view of a release that the Triton Inference Server reads: `config.pbtxt`, a version's files, warm-up inputs."""

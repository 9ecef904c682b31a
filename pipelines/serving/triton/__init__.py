"""Write the view of a release for the Triton Inference Server: `config.pbtxt`, a version's files, warm-up inputs."""

"""TensorRT and TensorRT-RTX engines: what is asked of a build, what is known of one, and the library behind both."""

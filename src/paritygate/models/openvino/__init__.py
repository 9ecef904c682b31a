"""Read OpenVINO models, and the settings that OpenVINO runs them with."""

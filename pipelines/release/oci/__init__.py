"""Copy releases to and from OCI registries, as artifacts of the CNCF's ModelPack: one layer for each file."""

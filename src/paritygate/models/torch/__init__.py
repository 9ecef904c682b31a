"""Read PyTorch modules, TorchScript files and `.pt2` files."""

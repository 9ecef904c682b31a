"""Convert PyTorch modules, TorchScript and `.pt2` files."""

"""Random weights with which a model answers every input otherwise, as a trained one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["lively", "lively_keras", "seeded", "settled", "settled_keras"]


def seeded(build: Callable[[], torch.nn.Module]) -> Callable[[], torch.nn.Module]:
    """Return what builds a module with the same lively weights every time."""

    def again() -> torch.nn.Module:
        import torch

        torch.manual_seed(0)
        return lively(build())

    return again


def settled(build: Callable[[], torch.nn.Module], shape: tuple[int, ...]) -> Callable[[], torch.nn.Module]:
    """Return what builds a module whose normalisations have the statistics of what they are given.

    Without them the numbers of a deep network of convolutions grow from layer to layer, beyond what FP16 holds.

    Args:
        build: Builds the module.
        shape: Shape of its input.
    """

    def again() -> torch.nn.Module:
        import torch

        module = build()
        inputs = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        layers = [layer for layer in module.modules() if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm)]  # noqa: SLF001
        for layer in layers:
            layer.train()
            # The statistics of the last batch alone.
            layer.momentum = 1.0
        with torch.no_grad():
            module(inputs)
        return module.eval()

    return again


def lively(module: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Give a module weights and statistics that are neither zero, one nor tiny, and put it into evaluation mode."""
    import torch

    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.is_floating_point():
                continue
            noise = torch.randn(parameter.shape, generator=random)
            # The gain of a convolution without normalisation has one number a channel, in four dims.
            if parameter.dim() > 1 and not (parameter.dim() == 4 and parameter[0].numel() == 1):
                # Activations of convolutions halve what passes them; what is halved ten times is a constant.
                gain = 1.6 if parameter.dim() > 2 else 1.0
                parameter.copy_(gain * noise / max(1.0, parameter[0].numel()) ** 0.5)
            else:
                parameter.add_(0.1 * noise)
        for layer in module.modules():
            if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm) and layer.running_mean is not None:  # noqa: SLF001
                layer.running_mean.copy_(0.2 * torch.randn(layer.running_mean.shape, generator=random))
                layer.running_var.copy_(0.5 + torch.rand(layer.running_var.shape, generator=random))
            elif type(layer).__name__ == "EncodecEuclideanCodebook":
                layer.embed.copy_(torch.randn(layer.embed.shape, generator=random))
            elif isinstance(layer, torch.nn.Embedding):
                layer.weight.copy_(torch.randn(layer.weight.shape, generator=random))
    return module.eval()


def lively_keras(model: Any, seed: int = 0) -> Any:
    """Do the same to a Keras model that is built."""
    import numpy as np

    random = np.random.default_rng(seed)
    for variable in model.weights:
        value = np.asarray(variable)
        if value.dtype.kind != "f" or "seed" in variable.path:
            continue
        noise = random.standard_normal(value.shape)
        if "variance" in variable.path:
            value = 0.5 + np.abs(noise)
        elif value.ndim > 1:
            value = noise / np.prod(value.shape[:-1]) ** 0.5
        else:
            value = value + 0.1 * noise
        variable.assign(value.astype(variable.dtype))
    return model


def settled_keras(build: Callable[[], Any], inputs: Callable[[], Any]) -> Callable[[], Any]:
    """Return what builds a Keras model whose normalisations have the statistics of what they are given."""

    def again() -> Any:
        model = build()
        for layer in model.layers:
            if hasattr(layer, "moving_variance"):
                # The statistics of the last batch alone.
                layer.momentum = 0.0
        model([inputs()], training=True)
        return model

    return again

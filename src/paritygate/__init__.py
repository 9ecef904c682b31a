"""Convert trained models, prove that they still answer like the original, release only those that do.

The parts of the product are the four linked packages `paritygate.convert`, `paritygate.validate`,
`paritygate.pipelines` and `paritygate.fixtures`; the modules beside this file are the ground floor
they stand on. Importing this package imports nothing else.
"""

__all__ = ["__version__"]

__version__ = "0.2.0"

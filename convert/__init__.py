"""Convert models, with one file for each converter."""

if __name__ != "paritygate.convert":
    raise ImportError(f"{__name__!r} is a part of paritygate: import 'paritygate.convert' instead")

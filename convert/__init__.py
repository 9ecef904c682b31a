"""Convert models, with one file for each converter."""

if __name__ != "paritygate.convert":
    msg = f"{__name__!r} is a part of paritygate: import 'paritygate.convert' instead"
    raise ImportError(msg)

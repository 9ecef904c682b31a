"""Converters: a model in, a model out, one file each."""

if __name__ != "paritygate.convert":
    msg = f"{__name__!r} is a part of paritygate: import 'paritygate.convert' instead"
    raise ImportError(msg)

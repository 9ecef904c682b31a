"""The gate: samples, reference, statistics, decisions, tolerance, verdict."""

if __name__ != "paritygate.validate":
    msg = f"{__name__!r} is a part of paritygate: import 'paritygate.validate' instead"
    raise ImportError(msg)

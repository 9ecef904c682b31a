"""The gate: samples, reference, statistics, decisions, tolerance, verdict."""

if __name__ != "paritygate.validate":
    raise ImportError(f"{__name__!r} is a part of paritygate: import 'paritygate.validate' instead")

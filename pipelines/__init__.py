"""Join converting and judging: spec, stages, repository and the command line."""

if __name__ != "paritygate.pipelines":
    raise ImportError(f"{__name__!r} is a part of paritygate: import 'paritygate.pipelines' instead")

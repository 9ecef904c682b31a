"""The outcome of a run or a comparison for CI systems: test cases, JUnit XML, annotations and a summary."""

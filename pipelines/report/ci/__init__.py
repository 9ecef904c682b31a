"""What came of a run or a comparison as CI systems read it: test cases, JUnit XML, annotations and a summary."""

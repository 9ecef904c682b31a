"""Choose and read the rows that INT8 variants are calibrated on."""

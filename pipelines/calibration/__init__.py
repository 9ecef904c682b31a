"""Chooses and reads the rows that INT8 variants are calibrated on."""

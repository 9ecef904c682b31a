"""Compares one candidate with one reference: what a comparison asks, what it measures, what it results in."""

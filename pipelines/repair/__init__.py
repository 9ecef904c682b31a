"""Find the fewest operators of a variant that have to stay in FP32."""

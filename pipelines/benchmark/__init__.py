"""How fast the source and its variants are: what is measured, by whom, and what is made of it."""

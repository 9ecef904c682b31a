"""The runs that are there: finding one by a short name, listing them, and removing those that are not needed."""

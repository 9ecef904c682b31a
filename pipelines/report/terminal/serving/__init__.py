"""The results of commands about servers in the terminal."""

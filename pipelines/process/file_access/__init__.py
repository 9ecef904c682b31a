"""Record what a child process reads: the kernel reports each file that any code in it opens or looks for."""

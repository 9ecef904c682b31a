"""Record what a child process reads: the kernel reports every file that is opened or looked for, by any program."""

"""What a child process read: the kernel tells of every file that is opened or looked for, whoever does it."""

"""Commands for model servers: views of a release, and the settings of a server that runs one."""

"""Load tests of users, which compare the answers of a server with a released file."""

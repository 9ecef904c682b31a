"""Sign releases with a key file, in the format of OpenSSF model signing, and check signatures."""

"""Looking at a model before anything is made of it: what it is (`inspect`), and a first spec for it (`init`)."""

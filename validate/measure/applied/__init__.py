"""Rules and limits applied to arrays."""

"""What a run would do, before it does anything."""

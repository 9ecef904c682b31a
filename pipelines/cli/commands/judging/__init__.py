"""Commands that compare models and runs, or test the gate."""

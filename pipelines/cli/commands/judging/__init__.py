"""Commands that say how models and runs stand against each other, or try whether the gate would see it."""

"""Views of a release for model servers: requests, writing, and rewriting those that follow an alias."""

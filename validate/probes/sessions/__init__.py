"""Probes of the session: the same real rows asked again, in other ways, and held to the first answers as well."""

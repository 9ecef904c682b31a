"""Parse roles of inputs without a spec: each as in `roles` there, or a role alone.

Most comparisons declare none, so the spec's modules are imported only where one is declared.
"""

from __future__ import annotations

from collections.abc import Mapping

from paritygate.errors import UsageError
from paritygate.text import nearest_first
from paritygate.validate.probes.inputs.roles import DeclaredRole, Role


def parse_roles(given: Mapping[str, object]) -> dict[str, DeclaredRole]:
    """Return the declared role of each input: a mapping with the keys of the spec, its YAML, or a role such as `mask`.

    Raises:
        UsageError: It is not a role, or has a key or value that the spec does not allow.
    """
    return {name: _role(name, value) for name, value in given.items()}


def _role(name: str, value: object) -> DeclaredRole:
    import yaml
    from pydantic import ValidationError

    from paritygate.pipelines.spec.role_part import RolePart

    where = f"role {name}={value}"
    try:
        # To YAML, a colon without a space after it is part of a word.
        data = yaml.safe_load(value) if isinstance(value, str) else value
    except yaml.YAMLError:
        raise UsageError(f"{where}: not YAML", hint=_hint(name)) from None
    if isinstance(data, str):
        if data not in set(map(str, Role)):
            msg = f"{where}: {data!r} is not a role (allowed: {', '.join(nearest_first(data, list(map(str, Role))))})"
            raise UsageError(msg, hint=_hint(name))
        data = {"role": data}
    try:
        return RolePart.model_validate(data).role_of_input
    except ValidationError as err:
        from paritygate.pipelines.spec.errors import role_problem

        words, key_meant = role_problem(name, data, err)
        raise UsageError(f"{where}: {words}", hint=key_meant or _hint(name)) from None


def _hint(name: str) -> str:
    return f"write for example {name}=mask, or as in roles of the spec: {name}={{empty: false, padding: right}}"

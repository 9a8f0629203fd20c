"""Guest attributes in the form that both APIs share."""

from collections.abc import Mapping


def items_json(attributes: Mapping[tuple[str, str], str], query: str) -> list[dict[str, str]]:
    """Return the attributes under *query*: all (empty), `namespace/`, or `namespace/key`."""
    namespace, _, key = query.partition("/")
    return [
        {"namespace": ns, "key": name, "value": value}
        for (ns, name), value in sorted(attributes.items())
        if namespace in ("", ns) and key in ("", name)
    ]

"""constraints.txt pins every package that `make setup` installs, including dependencies."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"


def pinned():
    """Name -> version, from the lines that apply to this Python."""
    lines = (line.partition("#")[0].strip() for line in CONSTRAINTS.read_text().splitlines())
    found = {}
    for requirement in map(Requirement, filter(None, lines)):
        (only,) = requirement.specifier
        assert only.operator == "==", requirement
        if requirement.marker is None or requirement.marker.evaluate():
            name = canonicalize_name(requirement.name)
            assert name not in found, f"{name} is pinned twice"
            found[name] = only.version
    return found


def needed(name, extras=frozenset(), seen=None):
    """Name -> the packages that require it, for everything that pip installs. An exact requirement counts as
    pinned."""
    seen = {} if seen is None else seen
    for text in distribution(name).requires or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in extras or {""}):
            continue
        child = canonicalize_name(requirement.name)
        exact = any(one.operator == "==" for one in requirement.specifier)
        known = child in seen and not requirement.extras
        if child != "timescale-models" and not exact:
            seen.setdefault(child, name)
        if not known:
            try:
                needed(child, requirement.extras, seen)
            except PackageNotFoundError:  # not of this environment
                continue
    return seen


def test_every_package_of_the_set_up_is_pinned():
    pins, wanted = (
        pinned(),
        needed("timescale-models", {"all", "dev", "coverage", "site", "cluster"}),
    )
    assert {"torch", "numpy", "pytest", "sympy", "pluggy"} <= set(wanted)
    missing = {name: who for name, who in wanted.items() if name not in pins}
    lines = [f"{name}=={distribution(name).version}  # of {who}" for name, who in missing.items()]
    assert not missing, "add to constraints.txt:\n" + "\n".join(sorted(lines))

"""The name of the processor, from invented /proc/cpuinfo files."""

from __future__ import annotations

import platform

import pytest

from tsm.plugin.common import processor as module
from tsm.plugin.common.processor import cpuinfo, processor

X86 = "processor\t: 0\nmodel name\t: Some Processor @ 2.50GHz\nflags\t\t: fma avx2\n"
X86 += "\nprocessor\t: 1\nmodel name\t: Another\n"


def arm(implementer: str, part: str) -> str:
    return (
        f"processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: {implementer}\n"
        f"CPU architecture: 8\nCPU part\t: {part}\n"
    )


@pytest.fixture
def says(monkeypatch, tmp_path):
    """Replaces /proc/cpuinfo by a file with that text; None: there is no such file."""

    def replace(text: str | None) -> None:
        path = tmp_path / "cpuinfo"
        if text is not None:
            path.write_text(text)
        monkeypatch.setattr(module, "Path", {"/proc/cpuinfo": path}.__getitem__)

    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    return replace


@pytest.mark.parametrize(
    "text, name",
    [
        (X86, "Some Processor @ 2.50GHz"),
        (arm("0x41", "0xd0c"), "Neoverse-N1"),
        (arm("0x41", "0xd4f"), "Neoverse-V2"),
        (arm("0x41", "0xfff"), "aarch64"),  # an unknown core
        (arm("0x42", "0xd0c"), "aarch64"),  # another company's
        ("", "aarch64"),
        (None, "aarch64"),
    ],
)
def test_name(says, text, name):
    says(text)
    assert processor() == name


def test_the_first_processor_counts(says):
    says(X86)
    assert cpuinfo("flags") == "fma avx2"
    assert cpuinfo("Features") == ""

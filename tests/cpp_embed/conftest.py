"""The library as a third party gets it: installed into an empty folder, found by CMake or pkg-config."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from .commands import ROOT, run


@pytest.fixture(scope="session")
def prefix(tmp_path_factory) -> Path:
    """The folder into which the component `runtime` of the build tree (TSM_BUILD_DIR, or build/dev) was
    installed."""
    tree = Path(os.environ.get("TSM_BUILD_DIR", ROOT / "build" / "dev"))
    if not (tree / "CMakeCache.txt").exists():
        pytest.skip(f"no build tree at {tree}: make build")
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake")
    folder = tmp_path_factory.mktemp("prefix dir")  # a space: people have them
    run("cmake", "--install", tree, "--component", "runtime", "--prefix", folder)
    return folder


@pytest.fixture(scope="session")
def library(prefix) -> Path:
    (found,) = [p for p in prefix.rglob("libtsm_runtime.so") if p.exists()]
    return found


@pytest.fixture(scope="session")
def environment(library) -> dict[str, str]:
    """Environment variables for programs linked with the installed library, and for pkg-config."""
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(library.parent),
        "PKG_CONFIG_PATH": str(library.parent / "pkgconfig"),
    }


@pytest.fixture(scope="session")
def build(prefix, tmp_path_factory):
    """Configures and builds a project with find_package(tsm); returns its build folder."""

    def built(source: Path, *flags: str) -> Path:
        folder = tmp_path_factory.mktemp(source.name)
        run("cmake", "-S", source, "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}", *flags)
        run("cmake", "--build", folder)
        return folder

    return built

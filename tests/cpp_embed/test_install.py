"""What is installed: the library, which exports only its API, and the files that builds use to find it."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

import tsm

from .commands import ROOT, run

HEADERS = [(ROOT / "cpp/include/tsm" / name).read_text() for name in ("tsm.h", "pool.h")]


def declared() -> set[str]:
    names = set(re.findall(r"TSM_API[^;(]*?\b(tsm_\w+)\(", "".join(HEADERS)))
    assert len(names) > 20
    return names


def test_only_the_api_is_visible(library):
    if shutil.which("nm") is None:
        pytest.skip("needs nm")
    lines = run("nm", "-D", "--defined-only", library).splitlines()
    assert {line.split()[-1] for line in lines} == declared()


def test_only_the_api_is_global_in_the_static_library(prefix):
    found = list(prefix.rglob("libtsm_runtime.a"))
    if not found or shutil.which("nm") is None:
        pytest.skip("needs nm, and a build with TSM_RUNTIME_STATIC")
    lines = run("nm", "--defined-only", "--extern-only", found[0]).splitlines()
    names = {line.split()[-1] for line in lines if len(line.split()) == 3}
    assert names == declared()


def test_needs_no_python_no_torch_no_cuda(library):
    if shutil.which("readelf") is None:
        pytest.skip("needs readelf")
    needed = re.findall(r"NEEDED.*\[(.+?)\.so", run("readelf", "-d", library))
    assert set(needed) <= {
        "libstdc++",
        "libm",
        "libgcc_s",
        "libc",
        "libpthread",
        "ld-linux-aarch64",
    } | {"ld-linux-x86-64"}


def test_is_small(library, tmp_path):
    if shutil.which("strip") is None:
        pytest.skip("strip is not there: the library is weighed without its symbol table")
    if b".nv_fatbin" in library.read_bytes():
        pytest.skip("built with CUDA: its kernels and its runtime are inside")
    run("strip", "-o", tmp_path / "stripped.so", library)  # as in a release build
    assert (tmp_path / "stripped.so").stat().st_size < 2_000_000


def test_files(prefix, library):
    names = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()}
    lib = library.parent.relative_to(prefix)
    assert {"include/tsm/tsm.h", "include/tsm/tsm.hpp", f"{lib}/pkgconfig/tsm.pc"} <= names
    assert f"{lib}/libtsm_runtime.so.{tsm.__version__}" in names
    assert not [name for name in names if name.endswith((".py", ".cc")) or "_core" in name]


@pytest.mark.parametrize(
    "asked, fits", [("0.1", True), ("0.0", False), ("0.2", False), ("1", False)]
)
def test_versions_that_cmake_accepts(prefix, tmp_path, asked, fits):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(x LANGUAGES CXX)\n"
        f"find_package(tsm {asked} REQUIRED)\n"
    )
    command = ["cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}"]
    result = subprocess.run([str(w) for w in command], capture_output=True, text=True)
    assert (result.returncode == 0) == fits, result.stderr


def test_pkg_config_tells_the_version(environment):
    if shutil.which("pkg-config") is None:
        pytest.skip("needs pkg-config")
    assert run("pkg-config", "--modversion", "tsm", env=environment).strip() == tsm.__version__

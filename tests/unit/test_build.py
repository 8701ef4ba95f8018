"""The build files: any folder works, CUDA is built where it can run, the runtime needs no Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

from tsm.runtime import isa_levels

ROOT = Path(__file__).parents[2]


def output(*words: object, cwd: Path) -> str:
    if shutil.which(str(words[0])) is None:
        pytest.skip(f"needs {words[0]}")
    command = [str(word) for word in words]
    # Environment variables set by a running `make test` or `.ci/run` are left out.
    settings = ("MAKE", "MFLAGS", "TSM_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(settings)}
    result = subprocess.run(
        command, cwd=cwd, env=clean, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return result.stdout


def test_the_command_that_checks_a_wheel():
    tomllib = pytest.importorskip("tomllib", reason="needs tomllib, which Python has from 3.11 on")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(
        settings["test-command"], shell=True, check=True, cwd=ROOT, env={**os.environ, "PATH": path}
    )


def test_a_checkout_in_a_folder_with_a_space(tmp_path):
    folder = tmp_path / "my dir"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "CMakeLists.txt"):
        shutil.copy(ROOT / name, folder)
    for name in ("cpp/cmake/cuda.cmake", "src/tsm/__init__.py"):
        (folder / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, folder / name)
    targets = ("demo", "test", "lint", "format", "cells", "docs", "bench", "wheel")
    printed = output("make", "-n", *targets, cwd=folder)
    assert printed.count(f'"{folder}') > 12, printed
    assert printed.count(str(folder)) == printed.count(f'"{folder}'), printed


@pytest.mark.parametrize(
    "version, flags, kernels",
    [
        ("11.2", (), "OFF"),
        ("11.8", (), "OFF"),
        ("12.0", (), "OFF"),
        ("12.1", (), "ON"),
        ("11.2", ("-DCMAKE_CUDA_ARCHITECTURES=80",), "OFF"),
        ("11.2", ("-DTSM_CUDA=ON",), "ON"),
    ],
)
def test_old_nvcc(tmp_path, version, flags, kernels):
    printed = configure_cuda(tmp_path, version, f"-DTSM_CUDA_DRIVER={tmp_path}", *flags)
    assert f"CUDA kernels {kernels}" in printed, printed
    assert (f"nvcc {version} is too old" in printed) == (kernels == "OFF"), printed
    assert ("configured" in printed) == (kernels == "OFF"), printed


@pytest.mark.parametrize(
    "driver, flags, said",
    [
        ("", (), "OFF (no GPU driver; TSM_CUDA=ON builds them if there is nvcc)"),
        ("", ("-DTSM_CUDA=ON",), "ON (TSM_CUDA=ON)"),
        ("/dev/null", (), "ON (nvcc and a GPU driver; TSM_CUDA=OFF leaves them out)"),
        ("/dev/null", ("-DTSM_CUDA=OFF",), "OFF (TSM_CUDA=OFF)"),
    ],
)
def test_cuda_is_built_where_there_is_a_driver(tmp_path, driver, flags, said):
    """CUDA is built if there is a driver or if it is requested; nvcc alone is not enough."""
    printed = configure_cuda(tmp_path, "12.8", f"-DTSM_CUDA_DRIVER={driver}", *flags)
    assert f"CUDA kernels {said}\n" in printed, printed


def configure_cuda(tmp_path, version, *flags):
    """Uses a compiler that only prints its version; if CUDA is built, configuring fails after the version
    check."""
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(x LANGUAGES NONE)\n"
        f'include("{ROOT}/cpp/cmake/cuda.cmake")\nmessage(STATUS "configured")\n'
    )
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(f'#!/bin/sh\necho "Cuda compilation tools, release {version}, V{version}.1"\n')
    nvcc.chmod(0o755)
    build = ("cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_CUDA_COMPILER={nvcc}")
    return output(*build, *flags, cwd=tmp_path)


def test_the_runtime_alone(tmp_path):
    """The build described in docs/streaming.md works without Python and pybind11, and builds no training
    code."""
    guide = (ROOT / "docs" / "streaming.md").read_text()
    ((flags, on_cpu),) = re.findall(r"^cmake -B build/runtime (.+?) +#.*(-D\S+)$", guide, re.M)
    hidden = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("Python", "pybind11")]
    tree = tmp_path / "b"
    printed = output("cmake", "-S", ROOT, "-B", tree, *flags.split(), on_cpu, *hidden, cwd=tmp_path)
    assert "CUDA kernels OFF" in printed and "Build files have been written" in printed, printed
    planned = output("cmake", "--build", tree, "--", "-n", cwd=tmp_path)
    assert "isa_stream" in planned and "isa_train" not in planned, planned


def test_a_build_for_this_machine_has_all_that_it_runs(tmp_path):
    flags = ("-DTSM_ISAS=native", "-DTSM_PYTHON=OFF", "-DTSM_BUILD_TESTS=OFF", "-DTSM_CUDA=OFF")
    printed = output("cmake", "-S", ROOT, "-B", tmp_path / "b", *flags, cwd=tmp_path)
    (found,) = re.findall(r"instruction sets (\S+)", printed)
    assert set(isa_levels()) <= set(found.split(";")), printed


def test_the_quick_build_has_scalar_and_the_highest_set(tmp_path):
    flags = ("-DTSM_ISAS=best", "-DTSM_PYTHON=OFF", "-DTSM_BUILD_TESTS=OFF", "-DTSM_CUDA=OFF")
    printed = output("cmake", "-S", ROOT, "-B", tmp_path / "b", *flags, cwd=tmp_path)
    (found,) = re.findall(r"instruction sets (\S+)", printed)
    sets = found.split(";")
    assert sets[0] == "scalar" and isa_levels()[-1] in sets, printed
    assert len(sets) <= (3 if sets[-1] == "amx" else 2), printed


def test_a_fresh_demo_builds_quickly_and_keeps_what_is_there(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)

    def planned(*words: str) -> set[str]:
        printed = output("make", "-n", *words, cwd=tmp_path)
        return set(re.findall(r"-DTSM_ISAS=(\S+)", printed))

    for name in ("pyproject.toml", "constraints.txt", "CMakeLists.txt"):
        (tmp_path / name).touch()
    for name in ("cpp/cmake/cuda.cmake", "src/tsm/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    assert planned("demo") == {"best"}
    assert planned("build") == planned("demo", "build") == {"native"}
    assert planned("demo", "TSM_ISAS=all") == {"all"}
    cache = tmp_path / "build" / "dev" / "CMakeCache.txt"
    cache.parent.mkdir(parents=True)
    cache.write_text("//Instruction sets\nTSM_ISAS:STRING=native\n")
    assert planned("demo") == {"native"}


def test_the_demo_installs_the_packages_of_training():
    printed = output("make", "-s", "--eval", "show: ; @$(train_packages)", "show", cwd=ROOT)
    extra = [r for r in requires("timescale-models") or [] if 'extra == "train"' in r]
    assert sorted(printed.split()) == sorted(r.partition(";")[0].strip() for r in extra), printed

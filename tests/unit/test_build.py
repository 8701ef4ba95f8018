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


def stub(folder: Path, name: str, script: str) -> Path:
    """A command of this name that the shell takes before the machine's own."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return folder / name


PYTHON_WITHOUT = 'case "$*" in *%s*) exit 1;; esac; exec ' + f'"{sys.executable}" "$@"'


@pytest.mark.parametrize(
    "python, compiler, package",
    [
        (PYTHON_WITHOUT % "ensurepip", "c++", "-venv"),
        (PYTHON_WITHOUT % "sysconfig", "c++", "-dev"),
        (PYTHON_WITHOUT % "nothing", "no-such-compiler", "g++"),
    ],
)
def test_what_the_machine_lacks_is_said_in_one_line(tmp_path, python, compiler, package):
    shutil.copy(ROOT / "Makefile", tmp_path)
    command = ("make", "-s", f"PYTHON={stub(tmp_path / 'bin', 'python3', python)}", "demo")
    for name in ("pyproject.toml", "constraints.txt", "CMakeLists.txt"):
        (tmp_path / name).touch()
    for name in ("cpp/cmake/cuda.cmake", "src/tsm/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    printed = output("env", f"CXX={compiler}", *command, cwd=tmp_path).splitlines()
    assert printed[0].startswith("error: ") and f"{package}" in printed[0], printed
    assert "apt-get install " in printed[0] and printed[1].startswith("make"), printed
    assert len(printed) == 2 and not (tmp_path / ".venv").exists(), printed


@pytest.mark.parametrize(
    "version, enough",
    [("3.25.1", "yes"), ("3.20.0", "yes"), ("4.4.4", "yes"), ("3.18.4", "no"), ("", "no")],
)
def test_cmake_is_installed_where_it_is_missing_or_old(tmp_path, version, enough):
    stub(tmp_path, "cmake", f"[ -n '{version}' ] && echo 'cmake version {version}'")
    show = ("make", "-s", "--eval", "show: ; @$(has_cmake) && echo yes || echo no", "show")
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    assert output("env", f"PATH={path}", *show, cwd=ROOT) == f"{enough}\n"


@pytest.mark.parametrize("user", [0, 1000])
@pytest.mark.parametrize("reached", [True, False])
def test_doctest_comes_from_the_distribution(tmp_path, user, reached):
    """As root by the package manager, else unpacked with package lists of its own; where neither works, a line
    says why, and the exit code is 0: the Python tests decide."""
    does = 'case "$*" in *download*) touch doctest-dev_1.deb;; esac' if reached else "false"
    said = 'echo "E: cannot reach the mirror" >&2; ' if not reached else ""
    stub(tmp_path, "apt-get", f'echo "$*" >>"{tmp_path}/calls"; {said}{does}')
    stub(tmp_path, "dpkg-deb", 'touch "$3/unpacked"')
    stub(tmp_path, "id", f"echo {user}")
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    script, prefix = ROOT / "tests" / "cpp" / "get_doctest.sh", tmp_path / "doctest"
    printed = output("env", f"PATH={path}", "sh", script, prefix, cwd=tmp_path)
    calls = (tmp_path / "calls").read_text()
    if reached:
        assert printed.startswith("[setup] doctest: ") and printed.count("\n") == 1, printed
        assert ("apt-get install" in printed) == (user == 0) != (str(prefix) in printed)
        assert ("install" in calls) == (user == 0)
        assert (prefix / "unpacked").exists() == ("Dir::State::Lists=" in calls) == (user != 0)
    else:
        assert printed.endswith("[setup] no doctest: E: cannot reach the mirror\n")
        assert not prefix.exists() and "Dir::State::Lists=" in calls


@pytest.mark.parametrize("known", [True, False])
def test_cpp_tests_without_doctest_are_left_out_in_one_line(tmp_path, known):
    """CMake finds the header where get_doctest.sh unpacks it; otherwise `make test` says how to get it."""
    include = tmp_path / "usr" / "include"
    if known:
        (include / "doctest").mkdir(parents=True)
        (include / "doctest" / "doctest.h").touch()
    lists = tmp_path / "CMakeLists.txt"
    lists.write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(x LANGUAGES NONE)\n"
        "set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)\nset(CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH OFF)\n"
        + re.search(r"^find_path\(.*\)$", (ROOT / "tests/cpp/tests.cmake").read_text(), re.M)[0]
    )
    output("cmake", "-S", tmp_path, "-B", tmp_path, f"-DCMAKE_INCLUDE_PATH={include}", cwd=tmp_path)
    show = ("make", "-s", "--eval", "show: ; @! $(no_doctest) || $(left_out)", "show")
    printed = output(*show, f"TREE={tmp_path}", cwd=ROOT)
    assert ("C++ tests left out" in printed and "apt-get install" in printed) != known, printed
    assert printed.count("\n") == (not known), printed


def test_the_check_installs_nothing_by_hand():
    assert not re.search(r"apt-get|\bpip\b", (ROOT / ".ci" / "run").read_text())


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


RUNTIME_ALONE = (
    "-GUnix Makefiles",
    "-DTSM_ISAS=scalar",
    "-DTSM_PYTHON=OFF",
    "-DTSM_BUILD_TESTS=OFF",
    "-DTSM_CUDA=OFF",
)


@pytest.mark.parametrize("known", [True, False])
def test_a_linker_gets_only_flags_that_it_knows(tmp_path, known):
    """zig's linker stops at --exclude-libs."""
    compiler = tmp_path / "c++"
    refuse = "" if known else 'case "$*" in *--exclude-libs*) exit 1;; esac\n'
    compiler.write_text(f'#!/bin/sh\n{refuse}exec "{shutil.which("c++")}" "$@"\n')
    compiler.chmod(0o755)
    flags = (*RUNTIME_ALONE, f"-DCMAKE_CXX_COMPILER={compiler}")
    printed = output("cmake", "-S", ROOT, "-B", tmp_path / "b", *flags, cwd=tmp_path)
    assert "Build files have been written" in printed, printed
    linked = (tmp_path / "b" / "CMakeFiles" / "tsm_runtime.dir" / "link.txt").read_text()
    assert "--gc-sections" in linked and ("--exclude-libs" in linked) == known


def test_a_platform_with_static_libraries_only(tmp_path):
    """As emscripten: add_subdirectory() gives tsm::runtime with all that it needs; nothing is installed."""
    (tmp_path / "static.cmake").write_text(
        "set(CMAKE_SYSTEM_NAME Generic)\nset(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)\n"
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(x LANGUAGES CXX)\n"
        f'add_subdirectory("{ROOT}" tsm)\nfile(WRITE main.cc "int main() {{}}")\n'
        "add_executable(app main.cc)\ntarget_link_libraries(app tsm::runtime)\n"
    )
    flags = (*RUNTIME_ALONE, "-DCMAKE_TOOLCHAIN_FILE=static.cmake")
    printed = output("cmake", "-S", tmp_path, "-B", tmp_path / "b", *flags, cwd=tmp_path)
    assert "no shared libraries here" in printed, printed
    assert "Build files have been written" in printed and "Warning" not in printed, printed
    linked = (tmp_path / "b" / "CMakeFiles" / "app.dir" / "link.txt").read_text()
    assert "libtsm_runtime.a" in linked and "libtsm_engine.a" in linked, linked
    installed = output(
        "cmake", "--install", tmp_path / "b", "--prefix", tmp_path / "p", cwd=tmp_path
    )
    assert "Error" not in installed and not (tmp_path / "p").exists(), installed


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

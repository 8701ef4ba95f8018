"""tsm-doctor: what is installed, what works, and why the rest does not.

    tsm-doctor                for people
    tsm-doctor --json         for programs

Works without torch. Exit code 0: everything installed works (missing extras are listed with the command that
installs them). 1: the self-test failed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from ... import __version__
from ..command.command import command
from ..command.flags import make_parser, strictly
from ..extras import extra_of, how_to_install

PACKAGES = ["numpy", "torch", "scipy", "tqdm", "matplotlib", "sentencepiece", "tensorboard"]
PACKAGES += ["onnx", "onnxruntime", "safetensors"]


@command("tsm-doctor")
def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    args = strictly(build_parser(), argv)
    found = examine()
    print(json.dumps(found, indent=2) if args.json else "\n".join(lines(found)))
    return 1 if any(not test["ok"] for test in found["self_test"]) else 0


def build_parser() -> argparse.ArgumentParser:
    p = make_parser("tsm-doctor", __doc__, "tsm-doctor [--json]")
    p.add_argument("--json", action="store_true", help="print JSON")
    return p


def examine() -> dict[str, Any]:
    """Everything, as plain values."""
    packages = {name: package(name) for name in PACKAGES}
    found: dict[str, Any] = {
        "tsm": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "packages": packages,
        "tools": {"nvcc": nvcc(), "nvidia_driver": driver()},
        "core": core(),
        "library": library(),
        "torch_cuda": None,
        "cpu_threads": None,
        "backends": [],
        "self_test": [],
    }
    if packages["torch"]["version"] and not packages["torch"]["problem"]:
        from . import _doctor_torch

        found["torch_cuda"] = _doctor_torch.cuda()
        found["cpu_threads"] = _doctor_torch.cpu_threads()
        found["backends"] = _doctor_torch.backends()
        found["self_test"] = _doctor_torch.self_test()
    return found


def package(name: str) -> dict[str, Any]:
    """version (None: not installed), problem (why it cannot be loaded), needs (how to install it)."""
    extra = extra_of(name)
    needs = how_to_install(extra) if extra else f"pip install {name}"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or name).partition(".")[0] == name:
            return {"version": None, "problem": "not installed", "needs": needs}
        return {"version": _version(name), "problem": one_line(error), "needs": needs}
    except Exception as error:
        return {"version": _version(name), "problem": one_line(error), "needs": needs}
    version = _version(name) or getattr(module, "__version__", "?")
    return {"version": str(version), "problem": None, "needs": needs}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def nvcc() -> str | None:
    """The version of the CUDA compiler, if one is found."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    folders = os.pathsep.join([os.environ.get("PATH", ""), *([f"{home}/bin"] if home else [])])
    match = re.search(r"release ([\d.]+)", _output("nvcc", "--version", path=folders))
    return match[1] if match else None


def driver() -> str | None:
    """The version of the NVIDIA driver, if nvidia-smi runs."""
    text = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return text.split("\n")[0].strip() or None


def _output(program: str, *arguments: str, path: str | None = None) -> str:
    found = shutil.which(program, path=path)
    if found is None:
        return ""
    try:
        run = subprocess.run(
            [found, *arguments], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return run.stdout


def core() -> dict[str, Any]:
    """The compiled core: whether it is available or why not, its cells, and its CUDA support."""
    from ..cells import get_cell, list_cells

    try:
        from tsm.runtime import _core
    except ImportError as error:
        return {
            "loaded": False,
            "problem": one_line(error),
            "needs": "pip install . (in the source tree, with a C++17 compiler)",
        }
    cells = [get_cell(name) for name in list_cells()]
    missing = {
        c.name: "not compiled in" if c.elementwise else "not element-wise"
        for c in cells
        if c.name not in _core.cells
    }
    version = str(_core.__version__)
    stale = None if version == __version__ else f"built for tsm {version}: build it again"
    return {
        "loaded": True,
        "problem": stale,
        "cells": sorted(_core.cells),
        "not_compiled": missing,
        "levels": list(_core.isa_levels()),
        "active_level": _active_level(),
        "cuda_built_in": bool(_core.with_cuda),
        "cuda_devices": int(_core.cuda_device_count()),
    }


def _active_level() -> str | None:
    """The instruction set in use; None if TSM_ISA names one that this machine does not have."""
    from tsm.runtime import TsmError, _core

    try:
        return str(_core.active_level())
    except TsmError:
        return None


def library() -> dict[str, str] | None:
    """The installed libtsm_runtime for C and C++, if pkg-config finds it."""
    version = _output("pkg-config", "--modversion", "tsm").strip()
    if not version:
        return None
    folder = _output("pkg-config", "--variable=libdir", "tsm").strip()
    return {"version": version, "folder": os.path.normpath(folder)}


def lines(r: dict[str, Any]) -> list[str]:
    """The report for people."""
    out = [f"tsm {r['tsm']}, Python {r['python']}, {r['platform']}", ""]
    for name, p in r["packages"].items():
        out.append(
            _row(name, p["version"], f"{p['problem']}; {p['needs']}" if p["problem"] else "")
        )
    for name, version in r["tools"].items():
        out.append(_row(name.replace("_", " "), version, "" if version else "not found"))
    out += ["", *core_lines(r["core"]), *library_lines(r["library"]), *torch_lines(r)]
    return out


def _row(name: str, value: str | None, note: str) -> str:
    return f"  {name:<15} {value or '-':<16} {note}".rstrip()


def core_lines(c: dict[str, Any]) -> list[str]:
    if not c["loaded"]:
        return [f"compiled core: no ({c['problem']})", f"  to get it: {c['needs']}"]
    out = ["compiled core: yes" + (f", but {c['problem']}" if c["problem"] else "")]
    out.append(f"  cells: {', '.join(c['cells'])}")
    for name, why in c["not_compiled"].items():
        out.append(f"  no generated kernels: {name} ({why})")
    levels = f"  instruction sets: {', '.join(c['levels'])}; in use: "
    if c["active_level"] is None:
        levels += f"none, as TSM_ISA = {os.environ.get('TSM_ISA')!r} is not one of them"
    out.append(levels + (c["active_level"] or ""))
    if c["cuda_built_in"]:
        out.append(f"  CUDA: built in, {c['cuda_devices']} device(s) seen")
    else:
        out.append("  CUDA: not built in (needs nvcc, and a GPU driver or TSM_CUDA=ON)")
    return out


def library_lines(found: dict[str, str] | None) -> list[str]:
    if found is None:
        how = "cmake --install build/dev --component runtime --prefix DIR"
        return [f"library for C and C++: not found by pkg-config ({how})"]
    return [f"library for C and C++: {found['version']} in {found['folder']}"]


def torch_lines(r: dict[str, Any]) -> list[str]:
    cuda = r["torch_cuda"]
    if cuda is None:
        needs = r["packages"]["torch"]["needs"]
        return ["", f"training and evaluation: no, they need torch: {needs}"]
    devices = ", ".join(cuda["devices"]) or f"no device ({cuda['problem']})"
    threads = r["cpu_threads"]
    whose = (
        "torch's"
        if threads["of_torch"]
        else "besides torch's, since its OpenMP runtime was not found"
    )
    out = ["", f"torch: CUDA {cuda['built_for'] or 'not built in'}, {devices}"]
    out += [f"training on GPU {i}: {path}" for i, path in enumerate(cuda["paths"])]
    out += [f"training on the CPU: {threads['count']} threads, {whose}", "", "backend of"]
    for b in r["backends"]:
        out.append(f"  {b['device']:<5} {b['dtype']:<9} {b['use']}")
    out += ["", "self-test, fused against reference, forward and gradients, largest difference"]
    for t in r["self_test"]:
        result = t["problem"] or f"{t['difference']:.1e} (allowed {t['allowed']:.0e})"
        out.append(f"  {t['cell']:<18} {t['device']:<5} {'ok  ' if t['ok'] else 'FAIL'} {result}")
    if not r["self_test"]:
        out.append("  nothing to test: no cell runs fused here")
    return out


if __name__ == "__main__":
    raise SystemExit(main())

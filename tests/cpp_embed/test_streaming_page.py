"""The C and C++ programs in docs/streaming.md run with the model that the page exports."""

from __future__ import annotations

import re
import shutil

import pytest

from tsm.export.tsm.package import package
from tsm.plugin.trained import open_trained

from .commands import ROOT, run

PAGE = (ROOT / "docs" / "streaming.md").read_text()
PROJECT = """cmake_minimum_required(VERSION 3.20)
project(page LANGUAGES C CXX)
find_package(tsm REQUIRED)
foreach(language c cpp)
  add_executable(program_${language} program.${language})
  target_link_libraries(program_${language} PRIVATE tsm::runtime)
endforeach()
"""


def test_programs_of_the_page(build, environment, tmp_path):
    if shutil.which("c++") is None:
        pytest.skip("needs a C++ compiler")
    (checkpoint,) = re.findall(r"tsm-export tsm --path (\S+) --output model\.tsm", PAGE)
    package(open_trained(ROOT / checkpoint), tmp_path / "model.tsm")
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    for language in ("c", "cpp"):
        (code,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
        (tmp_path / f"program.{language}").write_text(code)
    built = build(tmp_path)
    in_c, in_cpp = (
        run(built / f"program_{language}", cwd=tmp_path, env=environment).split()
        for language in ("c", "cpp")
    )
    assert len(in_c) == len(in_cpp) == 3
    # The same two steps, in float32 and in int8.
    assert [float(x) for x in in_c[:2]] == pytest.approx([float(x) for x in in_cpp[:2]], abs=0.2)

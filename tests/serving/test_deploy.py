"""The files in deploy/ pass linters, and their settings match tsm-serve."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from documented import ROOT
from tsm.runtime.serving.cli import parser
from tsm.runtime.serving.routes.health import OPEN, ROUTES

DEPLOY = ROOT / "deploy"
MANIFESTS = {
    one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()) if one
}
POD = MANIFESTS["Deployment"]["spec"]["template"]
CONTAINER = POD["spec"]["containers"][0]


@pytest.mark.parametrize(
    "command",
    [
        ["hadolint", "Dockerfile"],
        ["kubernetes-validate", "--strict", "kubernetes.yaml"],
        ["yamllint", "--strict", "kubernetes.yaml", "ray.yaml"],
    ],
    ids=lambda command: command[0],
)
def test_linters(command):
    program = Path(sys.executable).with_name(command[0])
    if not program.is_file():
        pytest.skip(f"no {command[0]}: `make cluster-env` installs it")
    done = subprocess.run([program, *command[1:]], cwd=DEPLOY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_container_runs_tsm_serve():
    """The manifest's flags exist, its probes are open routes, and its grace period is long enough."""
    args = parser().parse_args(
        [one.replace("$(TSM_STORE)", "redis://h/0") for one in CONTAINER["args"]]
    )
    assert args.host == "0.0.0.0" and args.same_level and args.model == ["text8=/models/text8.tsm"]
    mounted = {one["mountPath"] for one in CONTAINER["volumeMounts"]}
    assert {str(args.token_file.parent), "/models", "/tmp"} == mounted
    probes = {
        CONTAINER[f"{kind}Probe"]["httpGet"]["path"]
        for kind in ("startup", "readiness", "liveness")
    }
    assert probes <= {path for _, path, name, _ in ROUTES if name in OPEN} and len(probes) == 2
    wait = float(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert POD["spec"]["terminationGracePeriodSeconds"] > wait + args.grace
    assert CONTAINER["ports"][0]["containerPort"] == args.port


def test_what_belongs_together():
    """Selectors, names and users."""
    labels = POD["metadata"]["labels"]
    assert MANIFESTS["Service"]["spec"]["selector"] == labels
    assert MANIFESTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert (
        CONTAINER["env"][0]["valueFrom"]["secretKeyRef"]["key"] in MANIFESTS["Secret"]["stringData"]
    )
    assert POD["spec"]["securityContext"]["runAsNonRoot"]
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"]
    users = re.findall(r"^USER (\d+):", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert users == [str(POD["spec"]["securityContext"]["runAsUser"])]


def test_the_image_has_what_the_build_needs():
    """The image contains every folder and file of the package, and no others."""
    kept = re.findall(r"^!(.+)$", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    assert all((ROOT / name).exists() for name in kept)
    packages = {
        link.readlink().name for link in (ROOT / "src" / "tsm").iterdir() if link.is_symlink()
    }
    assert packages | {
        "pyproject.toml",
        "CMakeLists.txt",
        "cpp",
        "src",
        "LICENSE",
        "README.md",
    } <= {*kept}
    pinned = re.search(r"redis==(\S+)", (DEPLOY / "Dockerfile").read_text())
    assert pinned and pinned[0] in (ROOT / "constraints.txt").read_text().split()

"""Kubernetes resources as kubectl's kustomize builds them, or as they stand in their files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml


def read(folder: Path) -> list[dict[str, Any]]:
    """The resources that a folder's kustomization lists, those of other folders included, without its changes."""
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    resources: list[dict[str, Any]] = []
    for entry in listed:
        path = folder / entry
        if path.is_dir():
            resources += read(path)
        else:
            resources += yaml.safe_load_all(path.read_text(encoding="utf-8"))
    return resources


def built_by_kubectl(folder: Path) -> list[dict[str, Any]]:
    """What ``kubectl kustomize`` makes of a folder; nothing where kubectl is not installed."""
    if shutil.which("kubectl") is None:
        return []
    command = ["kubectl", "kustomize", str(folder)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    return list(yaml.safe_load_all(said.stdout))

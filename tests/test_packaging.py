"""Locks, entry points and the wheel hold what they promise."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))


def pins(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", text, flags=re.MULTILINE))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_holds_names_versions_and_hashes_and_no_address(lock: Path) -> None:
    lines = lock.read_text(encoding="utf-8").splitlines()
    pin = re.compile(r"[a-z0-9-]+==[0-9A-Za-z.]+( ; [a-z_]+ [!=<>]+ '[\w.]+'( and [a-z_]+ [!=<>]+ '[\w.]+')*)? \\")
    digest = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")
    assert [line for line in lines if not pin.fullmatch(line) and not digest.fullmatch(line)] == []


def test_the_development_lock_holds_the_runtime_lock() -> None:
    assert pins("runtime").items() <= pins("dev").items()


def test_every_declared_dependency_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def names(requirements: list[str]) -> set[str]:
        return {re.match(r"[a-z0-9-]+", requirement)[0] for requirement in requirements}  # type: ignore[index]

    assert names(project["dependencies"]) <= set(pins("runtime"))
    assert names(project["optional-dependencies"]["dev"]) <= set(pins("dev"))


def test_the_build_lock_is_made_from_what_the_build_requires() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    required = (ROOT / "requirements" / "build.in").read_text(encoding="utf-8").splitlines()[1:]
    assert required == project["build-system"]["requires"]


def test_an_old_python_is_told_which_one_is_needed(tmp_path: Path) -> None:
    source = (ROOT / "dev.py").read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 7))
    assert "__future__ import" not in source
    old = tmp_path / "dev.py"
    old.write_text(source.replace("OLDEST = (3, 11)", "OLDEST = (4, 0)"), encoding="utf-8")
    said = subprocess.run([sys.executable, old, "demo"], capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert said.stderr.startswith("dev.py: streamcal needs Python 3.11 or newer; this is ")
    assert "Traceback" not in said.stderr


def test_dev_py_lists_its_commands() -> None:
    said = subprocess.run([sys.executable, ROOT / "dev.py", "--help"], capture_output=True, text=True, check=True)
    for command in ("demo", "test", "check", "bench"):
        assert re.search(rf"^  {command} +\S", said.stdout, flags=re.MULTILINE)


def test_the_wheel_holds_the_package_and_the_demo_data(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-build-isolation", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    package = [name for name in names if name.startswith("streamcal/")]
    tracked = {path.relative_to(ROOT).as_posix() for path in (ROOT / "streamcal").rglob("*.py")}
    demo = {f"streamcal/demo_data/{path.name}" for path in (ROOT / "examples" / "flights").iterdir() if path.is_file()}
    assert wheel.name.startswith("streamcal_monitor-")
    assert tracked | demo | {"streamcal/py.typed"} <= set(package)
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"streamcal"}

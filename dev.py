#!/usr/bin/env python3
"""One entry to everything a checkout can do: ``python3 dev.py demo | test | check | bench | torture | lock``.

Standard library only. The first command makes ``.venv`` from the hashed locks in ``requirements/``: ``demo`` installs
the runtime set alone (wheels only, no compiler needed), the others add the development set. A stamp holding the hash of
lock, interpreter and place says whether the environment is still right; a stale one is made anew.

Must parse on Python 3.6, whose users deserve a sentence, not a syntax error: no ``from __future__``, ``:=``, ``match``.
"""

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
OLDEST = (3, 11)
NEWER = ("python3.13", "python3.12", "python3.11")
"""Interpreters the locks are tested with, best first."""


def fail(what: str, hint: str = "") -> NoReturn:
    """Print what happened and what to do about it, and exit with 1."""
    sys.stdout.flush()
    sys.stderr.write(f"dev.py: {what}\n" + (f"  {hint}\n" if hint else ""))
    sys.exit(1)


if sys.version_info < OLDEST:  # read by older interpreters, only to be told so
    found = [name for name in NEWER if shutil.which(name)]
    fail(
        "streamcal needs Python 3.11 or newer; this is {}.{}.".format(*sys.version_info[:2]),
        f"Run: {found[0]} dev.py ..." if found else "Install one (Debian 12, Ubuntu 24.04: apt-get install python3).",
    )


# --- environment -----------------------------------------------------------------------------------------------


def lock_path(name: str) -> Path:
    """Path of the lock ``runtime`` or ``dev``; the second holds all of the first."""
    return ROOT / "requirements" / f"{name}.lock"


def stamp_path(name: str) -> Path:
    """Where the environment records what it was made from."""
    return VENV / f"streamcal-{name}.stamp"


def fingerprint(name: str) -> str:
    """Hash of what an environment depends on: the lock, the interpreter, the place of the checkout."""
    parts = (lock_path(name).read_bytes(), sys.version.encode(), os.fsencode(sys.base_prefix), os.fsencode(ROOT))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def stamped(name: str) -> str | None:
    """What was recorded for the set ``name``; None where it was never installed to its end."""
    try:
        return stamp_path(name).read_text(encoding="ascii")
    except OSError:
        return None


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold a lock against a second dev.py that makes the same environment; the lock goes with the process."""
    with Path(__file__).open("rb") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("dev.py: another dev.py is preparing .venv, waiting for it", flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def ensure_environment(*, dev: bool) -> None:
    """Make or complete ``.venv`` so that it holds the runtime set and, with `dev`, the development set."""
    wanted = ("runtime", "dev") if dev else ("runtime",)
    with one_at_a_time():
        usable = PYTHON.exists() and stamped("runtime") is not None
        stale = any(stamped(name) not in {None, fingerprint(name)} for name in ("runtime", "dev"))
        if not usable or stale:
            create_environment()
        if any(stamped(name) is None for name in wanted):
            install(wanted[-1])
            for name in wanted:
                stamp_path(name).write_text(fingerprint(name), encoding="ascii")


def create_environment() -> None:
    """Make an empty ``.venv`` that finds the checkout and has a ``streamcal`` command."""
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        fail(
            f"{sys.executable} cannot make virtual environments.",
            "Install the system package python3-venv (Debian, Ubuntu: apt-get install python3-venv).",
        )
    print("dev.py: making .venv with Python {}.{}.{}".format(*sys.version_info[:3]), flush=True)
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", str(VENV)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        fail(f"making {VENV} failed:\n{made.stdout.rstrip()}", "Remove .venv and try again.")
    (site,) = VENV.glob("lib/python3*/site-packages")
    (site / "streamcal-checkout.pth").write_text(f"{ROOT}\n", encoding="utf-8")
    launcher = VENV / "bin" / "streamcal"
    launcher.write_text(f'#!/bin/sh\nexec {shlex.quote(str(PYTHON))} -P -m streamcal "$@"\n', encoding="utf-8")
    launcher.chmod(0o755)


def install(name: str) -> None:
    """Install the set `name` into ``.venv`` exactly as locked: hashes checked, wheels only, nothing resolved."""
    total = sum(not line.startswith((" ", "#")) for line in lock_path(name).read_text(encoding="utf-8").splitlines())
    print(f"dev.py: installing up to {total} packages from requirements/{name}.lock", flush=True)
    command = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    command += ["--require-hashes", "--only-binary", ":all:", "--no-deps", "--progress-bar", "off"]
    command += ["--requirement", str(lock_path(name))]
    tail: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            tail = [*tail[-14:], line.rstrip()]
            show_progress(line)
    clear_progress()
    if pip.returncode != 0:
        fail(
            "installing failed:\n" + "\n".join(tail),
            f"The locks are tested on Linux with Python 3.11 to 3.13; pip said the above for {lock_path(name).name}.",
        )


def show_progress(line: str) -> None:
    """On a terminal, show which package pip is at."""
    if sys.stdout.isatty() and line.startswith(("Collecting ", "Installing collected ")):
        words = line.split()[1] if line.startswith("Collecting") else "unpacking"
        print(f"\r\x1b[K  {words}", end="", flush=True)


def clear_progress() -> None:
    """Remove the progress line again."""
    if sys.stdout.isatty():
        print("\r\x1b[K", end="", flush=True)


# --- commands --------------------------------------------------------------------------------------------------


def become(arguments: Sequence[str]) -> NoReturn:
    """Turn this process into the environment's Python: signals and the exit code need no forwarding."""
    sys.stdout.flush()
    os.execv(PYTHON, [str(PYTHON), *arguments])


def demo(rest: Sequence[str]) -> NoReturn:
    """Stream the shipped flights through the whole loop and show live figures."""
    ensure_environment(dev=False)
    become(["-P", "-m", "streamcal", "demo", *rest])


def test(rest: Sequence[str]) -> NoReturn:
    """Run the tests from the root of the checkout; further arguments go to pytest."""
    ensure_environment(dev=True)
    os.chdir(ROOT)
    # One file of tests per core at a time; each worker makes its own Kafka and year of flights, hence the limit.
    become(["-m", "pytest", "-n", "auto", "--maxprocesses", "4", "--dist", "loadfile", *rest])


CHECKS = (
    ("lint", ("-m", "ruff", "check", ".")),
    ("format", ("-m", "ruff", "format", "--check", ".")),
    ("types", ("-m", "mypy")),
    ("imports", ("-c", "from importlinter.cli import lint_imports_command as c; c(['--no-logo'])")),
)


def check(rest: Sequence[str]) -> int:
    """Run lint, format, types and import contracts, all of them, and name those that failed."""
    unknown = set(rest) - {name for name, _ in CHECKS}
    if unknown:
        fail(f"no such check: {', '.join(sorted(unknown))}", f"Known: {', '.join(name for name, _ in CHECKS)}")
    ensure_environment(dev=True)
    failed = []
    for name, arguments in CHECKS:
        if rest and name not in rest:
            continue
        print(f"--- {name}", flush=True)
        if subprocess.run([str(PYTHON), *arguments], cwd=ROOT, check=False).returncode != 0:
            failed.append(name)
    print(f"check: {', '.join(failed)} failed" if failed else "check: all clean", flush=True)
    return 1 if failed else 0


def benchmark_scripts() -> dict[str, Path]:
    """Benchmarks by name: ``benchmarks/NAME.py`` or ``benchmarks/NAME/run.py``."""
    single = {path.stem: path for path in (ROOT / "benchmarks").glob("[a-z]*.py")}
    return {**single, **{path.parent.name: path for path in (ROOT / "benchmarks").glob("[a-z]*/run.py")}}


def bench(rest: Sequence[str]) -> NoReturn:
    """Run one benchmark with its own arguments; without a name, list them."""
    scripts = benchmark_scripts()
    if not rest or rest[0] not in scripts:
        if rest:
            fail(f"no such benchmark: {rest[0]}", f"Known: {', '.join(sorted(scripts)) or 'none'}")
        print("\n".join(["Run one with: python3 dev.py bench NAME", *(f"  {name}" for name in sorted(scripts))]))
        sys.exit(0)
    ensure_environment(dev=True)
    become([str(scripts[rest[0]]), *rest[1:]])


TORTURES = ("simulation", "monitor_kills", "monitor_catch_up", "monitor_fuzz", "transform_kills", "monitor_soak")
"""Programs in ``tests/torture``, in the order they are run."""


def torture(rest: Sequence[str]) -> int:
    """Run what is too long for the tests, hours in all; or one of it, with its own arguments."""
    if rest and rest[0] not in TORTURES:
        fail(f"no such torture: {rest[0]}", f"Known: {', '.join(TORTURES)}")
    ensure_environment(dev=True)
    if rest:
        become([str(ROOT / "tests" / "torture" / f"{rest[0]}.py"), *rest[1:]])
    failed = []
    for name in TORTURES:
        print(f"--- {name}", flush=True)
        command = [str(PYTHON), str(ROOT / "tests" / "torture" / f"{name}.py")]
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
            failed.append(name)
    print(f"torture: {', '.join(failed)} failed" if failed else "torture: all survived", flush=True)
    return 1 if failed else 0


LOCKS = {
    "runtime": ("pyproject.toml",),
    "dev": ("pyproject.toml", "--extra", "dev", "--constraints", "requirements/runtime.lock"),
    "build": ("requirements/build.in",),
}


def lock(rest: Sequence[str]) -> int:
    """Resolve pyproject.toml again into requirements/*.lock (needs uv); for maintainers."""
    uv = shutil.which("uv") or fail("uv is not installed.", "pip install uv, then run this again.")
    common = ["--quiet", "--universal", "--python-version", "3.11", "--fork-strategy", "fewest", "--generate-hashes"]
    common += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", *rest]
    for name, source in LOCKS.items():
        command = [uv, "pip", "compile", *common, *source, "--output-file", f"requirements/{name}.lock"]
        if subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode != 0:
            return 1
    return 0


COMMANDS = {"demo": demo, "test": test, "check": check, "bench": bench, "torture": torture, "lock": lock}


def main(argv: Sequence[str]) -> int:
    """Run one command; what follows its name is passed on."""
    summary = "\n".join(f"  {name:7} {(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="dev.py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Work with a checkout of streamcal.",
        epilog=f"commands:\n{summary}",
    )
    parser.add_argument("command", choices=COMMANDS, metavar="command")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="passed on to the command")
    if not argv:
        parser.print_help()
        return 2
    options = parser.parse_args(argv)
    return COMMANDS[options.command](options.rest)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.stderr.write("\ndev.py: interrupted\n")
        sys.exit(130)

"""What holds for every command: exit codes, one message for a user's mistake, a quick start, a quiet end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamcal import __version__
from streamcal.cli import message, run_command
from streamcal.errors import BrokerError, ConfigError, InputFileError

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "streamcal"]


def run_process(*arguments: object, code: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code] if code else [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def rest_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process still writes until it ends; `communicate` would lose what `readline` has read ahead."""
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdout.read(), process.stderr.read()


def test_the_version_is_the_package_version(streamcal) -> None:
    assert streamcal("--version") == (0, f"streamcal {__version__}\n", "")


def test_help_names_every_command(streamcal) -> None:
    said = streamcal("--help")
    assert said.code == 0
    assert set(re.findall(r"^  ([a-z][a-z-]*) ", said.out, flags=re.MULTILINE)) == {
        "run", "demo", "replay", "fit", "transform", "check-config", "doctor", "init", "maps", "state",
    }  # fmt: skip


@pytest.mark.parametrize("command", ["run", "demo", "replay", "check-config", "maps show"])
def test_every_command_takes_a_configuration(streamcal, command: str) -> None:
    said = streamcal(*command.split(), "--help")
    assert said.code == 0
    assert "--config FILE" in said.out


HEAVY = (
    "kafka",
    "scipy",
    "numpy",
    "rich.console",
    "prometheus_client",
    "jinja2",
    "streamcal.runtime",
)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["replay", "--help"]], ids=" ".join)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
import sys
from streamcal.cli import run_command
assert run_command({arguments!r}) == 0
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    assert run_process(code=code).stderr.strip() == "[]"


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["--nonsense"], ["replay"], ["maps"], ["demo", "--port", "x"], []],
    ids=" ".join,
)
def test_wrong_usage_is_code_2(streamcal, arguments: list[str]) -> None:
    said = streamcal(*arguments)
    assert said.code == 2
    assert "Usage: streamcal" in said.err + said.out
    assert "Traceback" not in said.err


def test_a_users_mistake_is_one_line_on_standard_error(streamcal, tmp_path: Path) -> None:
    said = streamcal("maps", "show", "--file", tmp_path / "no.json")
    assert said == (
        3,
        "",
        f"streamcal: {tmp_path}/no.json: No such file or directory; check the path and its permissions\n",
    )


def test_a_message_says_what_where_and_what_to_do() -> None:
    assert message(BrokerError("no broker answers", where="a:1", hint="start it")) == (
        "streamcal: a:1: no broker answers; start it"
    )
    assert message(InputFileError("is empty")) == "streamcal: is empty"
    problems = ConfigError([("join.horizon", "must be above 0"), ("kafka.x", "is not a key")], where="c.yaml")
    assert message(problems).splitlines() == [
        "streamcal: c.yaml: 2 problems in the configuration",
        "  join.horizon: must be above 0",
        "  kafka.x: is not a key",
    ]


def test_a_bug_keeps_its_traceback() -> None:
    code = """
import streamcal.runtime.config
def broken(*_, **__): raise ZeroDivisionError("ours")
streamcal.runtime.config.load_config = broken
from streamcal.cli import main
import sys; sys.argv = ["streamcal", "check-config"]
main()
"""
    said = run_process(code=code)
    assert said.returncode == 1
    assert said.stderr.startswith("Traceback (most recent call last):")
    assert said.stderr.rstrip().endswith("ZeroDivisionError: ours")


def test_an_interrupt_is_code_130_without_a_word(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("streamcal.runtime.config.load_config", interrupted)
    assert run_command(["check-config"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_leaves_ends_it_quietly() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, "check-config"], stdout=write, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_the_demo_ends_at_ctrl_c_with_what_it_saw() -> None:
    """From the first line on, and with nothing left running."""
    command = [*COMMAND, "demo", "--port", "0", "--speed", "20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = rest_of(process)
    assert re.fullmatch(r"flights of 2013; status page http://127\.0\.0\.1:\d+\n", first)
    assert (process.returncode, err) == (0, "")
    assert out.startswith("month ")


def test_a_taken_port_is_one_clear_line(streamcal) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = streamcal("demo", "--port", port)
    assert said.code == 5
    assert said.err.count("\n") == 1
    assert said.err.startswith(f"streamcal: 127.0.0.1:{port}: cannot listen: Address already in use; ")


def test_a_taken_configured_port_gives_way_to_the_next_free_one() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        environment = {**os.environ, "STREAMCAL_SERVE__PORT": str(port)}
        command = [*COMMAND, "demo", "--speed", "20"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        ) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            _, err = rest_of(process)
    found = re.search(r":(\d+)$", first.strip())
    assert found is not None
    assert port < int(found[1]) <= port + 20
    assert (process.returncode, err) == (0, f"port {port} is in use; serving on {found[1]}\n")


def test_python_m_streamcal_is_the_command() -> None:
    assert run_process("--version").stdout == f"streamcal {__version__}\n"


def test_nothing_is_written_where_a_command_fails(streamcal, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(json.dumps({"join": {"horizon": "no"}}), encoding="utf-8")
    said = streamcal("replay", "--config", config, "--events", tmp_path / "no.jsonl", "--report", tmp_path / "report")
    assert said.code == 2
    assert list((tmp_path / "report").iterdir()) == []

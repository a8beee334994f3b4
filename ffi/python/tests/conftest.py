"""Fixtures of all tests: names of sets, programs in separate processes, and a last line for `cargo xtask`."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import textwrap

import pytest

import limitset

# The parent of the tests may ignore signals, and children inherit that: then Ctrl-C would not arrive.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)

#: So long that it only passes when something hangs.
WATCHDOG = 60


@pytest.fixture
def name():
    """A name for a set, which is removed at the end."""
    name = f"test-py-{os.getpid()}-{secrets.token_hex(6)}"
    yield name
    try:
        limitset.remove(name)
    except (limitset.SegmentError, limitset.LimitSetRemoved):
        pass


class Program:
    """A Python program that prints a line at each step, and reads a line before it goes on."""

    def __init__(self, text: str, *arguments: str) -> None:
        # A session of its own, so that the processes it forks can be killed with it.
        command = [sys.executable, "-u", "-c", textwrap.dedent(text), *arguments]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
        self.pid = self.process.pid

    def line(self) -> str:
        line = self.process.stdout.readline()
        assert line, f"it ended: {self.process.stderr.read()}"
        return line.strip()

    def go_on(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> str:
        """Waits for its end; returns the rest of its output."""
        out, err = self.process.communicate(timeout=WATCHDOG)
        assert self.process.returncode == 0, f"{self.process.returncode}: {out}{err}"
        return out.strip()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


@pytest.fixture
def program():
    """Starts programs; kills those that still run at the end."""
    started = []

    def start(text: str, *arguments: str) -> Program:
        started.append(Program(text, *arguments))
        return started[-1]

    yield start
    for it in started:
        try:
            os.killpg(it.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        it.process.communicate()


def pytest_terminal_summary(terminalreporter):
    """Prints the line that `cargo xtask test` counts, and a line with the reason for each skipped test."""
    stats = terminalreporter.stats
    count = lambda *kinds: sum(len(stats.get(kind, ())) for kind in kinds)  # noqa: E731
    failed = count("failed", "error")
    for report in stats.get("skipped", ()):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"SKIPPED {report.nodeid}: {why.removeprefix('Skipped: ')}")
    skipped = count("skipped")
    verdict = "FAILED" if failed else "ok"
    # Skipped tests count as passed, as in the harnesses of Rust.
    passed = count("passed") + skipped
    terminalreporter.write_line(f"test result: {verdict}. {passed} passed; {failed} failed; 0 ignored")

"""What all tests share: names of their own, programs in processes of their own, and a last line for `cargo xtask`."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import textwrap

import pytest

import limitset

# Whatever started the tests may ignore signals, and that is inherited: then Ctrl-C would not arrive.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)

#: So long that it only passes when something hangs.
WATCHDOG = 60


@pytest.fixture
def name():
    """A name for a set, which is removed in the end."""
    name = f"test-py-{os.getpid()}-{secrets.token_hex(6)}"
    yield name
    try:
        limitset.remove(name)
    except (limitset.SegmentError, limitset.LimitSetRemoved):
        pass


class Program:
    """A Python program that tells by lines what it does, and is told by lines to go on."""

    def __init__(self, text: str, *arguments: str) -> None:
        # A session of its own: what it forks ends with it.
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
        """Waits for its end; gives the rest of what it says."""
        out, err = self.process.communicate(timeout=WATCHDOG)
        assert self.process.returncode == 0, f"{self.process.returncode}: {out}{err}"
        return out.strip()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


@pytest.fixture
def program():
    """Starts programs; those that still run in the end are killed."""
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
    """Says in one line what `cargo xtask test` counts, and in one line each what was skipped, and why."""
    stats = terminalreporter.stats
    count = lambda *kinds: sum(len(stats.get(kind, ())) for kind in kinds)  # noqa: E731
    failed = count("failed", "error")
    for report in stats.get("skipped", ()):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"SKIPPED {report.nodeid}: {why.removeprefix('Skipped: ')}")
    skipped = count("skipped")
    verdict = "FAILED" if failed else "ok"
    # As the harnesses of Rust do, it counts those that say that they skip as passed.
    passed = count("passed") + skipped
    terminalreporter.write_line(f"test result: {verdict}. {passed} passed; {failed} failed; 0 ignored")

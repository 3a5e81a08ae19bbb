"""`baton chat` on a terminal: editing, history, completion, Ctrl-C."""

import json
import os
import pathlib
import pty
import re
import select
import signal
import time

from conftest import BINARY


class Terminal:
    """A program on a pseudo-terminal, whose output is read until an expected text appears."""

    def __init__(self, home: pathlib.Path, *arguments: str):
        self.seen = ""
        self.process, self.descriptor = pty.fork()
        if self.process == 0:
            environment = {k: v for k, v in os.environ.items() if k != "XDG_STATE_HOME"} | {"HOME": str(home), "TERM": "xterm"}
            os.execve(BINARY, [BINARY, *arguments], environment)

    def type(self, keys: str, expected: str, seconds: float = 60):
        """Types, and returns what appears from then on, up to the expected text."""
        os.write(self.descriptor, keys.encode())
        return self.wait_for(expected, seconds)

    def wait_for(self, expected: str, seconds: float = 60) -> str:
        deadline = time.monotonic() + seconds
        while expected not in self.seen:
            assert time.monotonic() < deadline, f"no {expected!r} in {self.seen!r}"
            if select.select([self.descriptor], [], [], 0.2)[0]:
                self.seen += os.read(self.descriptor, 4096).decode(errors="replace")
        before, after = self.seen.split(expected, 1)
        self.seen = after
        return before

    def end(self) -> int:
        """Ctrl-D; returns the exit code."""
        os.write(self.descriptor, b"\x04")
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            process, status = os.waitpid(self.process, os.WNOHANG)
            if process:
                os.close(self.descriptor)
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.05)
        os.kill(self.process, signal.SIGKILL)
        raise AssertionError("it does not end")


def test_lines_are_edited_completed_and_kept(tmp_path, questions):
    question, answer = questions[0]["messages"][-1]["content"], questions[0]["answer"]
    chat = Terminal(tmp_path, "chat", "--temperature", "0")
    chat.wait_for("> ")
    chat.type("/he\t\r", "Ctrl-C stops an answer")
    chat.wait_for("> ")
    # A letter of two bytes is deleted as one.
    chat.type("\u00e4\x7f" + question + "\r", answer)
    chat.wait_for("> ")
    chat.type("/reset\r", "\r\n> ")
    chat.type("a line that is dropped\x03", "\r\n> ")
    chat.type("\x1b[A\x1b[A\r", answer)  # two lines earlier
    chat.wait_for("> ")
    assert chat.end() == 0
    kept = tmp_path / ".local/state/baton/chat_history"
    assert kept.stat().st_mode & 0o077 == 0
    assert "dropped" not in kept.read_text()

    again = Terminal(tmp_path, "chat", "--temperature", "0")
    again.wait_for("> ")
    again.type("\x1b[A\r", answer)
    again.wait_for("> ")
    assert again.end() == 0


def test_nothing_is_kept_where_that_is_asked_for(tmp_path):
    chat = Terminal(tmp_path, "chat", "--no-history")
    chat.wait_for("> ")
    chat.type("/stats\r", "from the cache")
    chat.wait_for("> ")
    assert chat.end() == 0
    assert not list(tmp_path.rglob("chat_history"))


def test_calls_of_tools_are_shown_and_their_results_typed(tmp_path):
    parameters = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"],
        "additionalProperties": False,
    }
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([{"type": "function", "function": {"name": "plan_trip", "parameters": parameters}}]))
    flags = ("--tools", str(tools), "--no-history")
    chat = Terminal(tmp_path, "chat", *flags, "--tool-choice", "plan_trip", "--temperature", "0", "--max-tokens", "300")
    chat.wait_for("> ")
    chat.type("To Paris, please.\r", "[call] plan_trip(")
    arguments = chat.wait_for("\r\n")
    assert re.fullmatch(r'city="(Paris|Rome)", days=\d\)', arguments), arguments
    chat.wait_for("result of plan_trip> ")
    after = chat.type("booked\r", "\r\n> ", seconds=120)
    assert "[call]" not in after, "an answer to a result is free"
    assert "<tool_call>" not in after
    chat.type("/stats\r", "from the cache")
    chat.wait_for("> ")
    chat.type("Again.\r", "result of plan_trip> ")
    chat.type("/reset\r", "\r\n> ")
    assert chat.end() == 0

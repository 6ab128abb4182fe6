"""Finds and starts the program `crest`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NoReturn, Optional, Sequence, Tuple

NO_MEMORY = 3  # exit code: does not fit in memory


class CrestError(Exception):
    """Crest refused or failed. `message` says what, where and what to do; `code` is the exit code of the program
    (1 failed, 2 wrong usage, 3 does not fit in memory, 4 no such device, 130 interrupted)."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.code = code

    def __reduce__(self) -> Tuple[Any, ...]:
        return CrestError, (self.message, self.code)


def program() -> str:
    """The path of the program: the one of this package, else the one in PATH."""
    own = Path(__file__).resolve().parent / "bin" / "crest"
    if own.is_file():
        return str(own)
    found = shutil.which("crest")
    if found is None:
        raise CrestError(
            f"the program crest was not found: {own} does not exist, and no folder in PATH has it\n"
            "  Install the wheel of crest-train, or build Crest and add its folder to PATH."
        )
    return found


def main() -> NoReturn:
    """The command `crest` of the wheel: becomes the program."""
    path = program()
    os.execv(path, ["crest", *sys.argv[1:]])


def flags(settings: Mapping[str, Any]) -> List[str]:
    """--flags of keyword arguments: grad_accumulation=4 is --grad-accumulation=4. None leaves a setting out; a list
    repeats a flag."""
    words: List[str] = []
    for name, value in settings.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is None:
                continue
            text = str(one).lower() if isinstance(one, bool) else os.fspath(one) if hasattr(one, "__fspath__") else str(one)
            words.append(f"{flag}={text}")
    return words


def call(
    arguments: Sequence[str],
    *,
    given: Optional[Iterable[bytes]] = None,
    at_once: bool = False,
    show: bool = False,
    accept: Sequence[int] = (),
) -> Any:
    """Runs `crest ARGUMENTS --json` and returns its document. `given` goes to standard input: with `at_once`, each piece
    without delay. With `show`, messages of the program go to sys.stderr. Exit codes of `accept` also have a document.
    Ctrl-C reaches the program, which saves its work and ends; then KeyboardInterrupt continues."""
    process = subprocess.Popen(
        [program(), *arguments, "--json"],
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # a terminal's Ctrl-C would arrive twice, and the second one ends without saving
    )
    streams = _Streams(process, show)
    failed: List[BaseException] = []
    try:
        if given is not None:
            try:
                _feed(process, given, at_once)
            except BaseException as e:
                # Its input stays open: the program cannot mistake a part for the whole.
                failed.append(e)
                _stop(process)
        process.wait()
    except KeyboardInterrupt:
        _stop(process)
        raise
    finally:
        streams.join()
    if failed:
        raise failed[0]
    if process.returncode != 0 and not (process.returncode in accept and streams.out.strip()):
        raise _error(streams.err.decode(errors="replace"), process.returncode, arguments)
    try:
        return json.loads(streams.out)
    except ValueError as e:
        raise CrestError(f"{program()} {' '.join(arguments)} --json printed no JSON: {e}") from None


def lines(arguments: Sequence[str], given: Iterable[bytes], *, show: bool = False) -> Iterator[bytes]:
    """Runs `crest ARGUMENTS` with `given` on standard input, and yields the lines of its output as they come."""
    process = subprocess.Popen(
        [program(), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    streams = _Streams(process, show, out=False)
    feeder = threading.Thread(target=_feed, args=(process, given, False), daemon=True)
    feeder.start()
    try:
        yield from process.stdout
        process.wait()
    finally:
        if process.poll() is None:  # the reader went away, or Ctrl-C
            _stop(process)
        feeder.join()
        streams.join()
        process.stdout.close()
    if process.returncode != 0:
        raise _error(streams.err.decode(errors="replace"), process.returncode, arguments)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """As Ctrl-C in a terminal; a second Ctrl-C does not wait."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait()
    except KeyboardInterrupt:
        process.kill()


def _feed(process: "subprocess.Popen[bytes]", given: Iterable[bytes], at_once: bool) -> None:
    assert process.stdin is not None
    try:
        for piece in given:
            process.stdin.write(piece)
            if at_once:
                process.stdin.flush()
        process.stdin.close()
    except BrokenPipeError:
        pass  # the program ended early: its message says why


class _Streams:
    """Reads the outputs of a process in threads, since either may fill up."""

    def __init__(self, process: "subprocess.Popen[bytes]", show: bool, out: bool = True) -> None:
        self.out = b""
        self.err = b""
        self._process = process
        self._show = show
        readers = [self._read_out, self._read_err] if out else [self._read_err]
        self._threads = [threading.Thread(target=f, daemon=True) for f in readers]
        for thread in self._threads:
            thread.start()

    def _read_out(self) -> None:
        assert self._process.stdout is not None
        self.out = self._process.stdout.read()

    def _read_err(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.err = (self.err + line)[-100_000:]
            if self._show:
                sys.stderr.write(line.decode(errors="replace"))

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


def _error(err: str, code: int, arguments: Sequence[str]) -> CrestError:
    mark = "crest: error: "
    at = err.rfind(mark)
    if at >= 0:
        return CrestError(err[at + len(mark) :].strip(), code)
    if code == 130:
        return CrestError("interrupted", code)
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return CrestError(f"crest {' '.join(arguments)} {how}\n{err[-2000:].strip()}".strip(), code)


Json = Dict[str, Any]

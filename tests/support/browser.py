"""A headless Chromium, spoken to over a pipe in its own protocol (CDP): no driver, no network."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

# The browser reads commands from descriptor 3 and answers on 4.
_START = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_browser() -> str | None:
    """The program, of Debian's package, Google's, or whatever MIXBENCH_BROWSER names."""
    named = os.environ.get("MIXBENCH_BROWSER")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One browser with one page.

    Args:
        program: Chromium or something of its kind.
        profile: An empty folder for what it keeps.
    """

    def __init__(self, program: str, profile: Path) -> None:
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        self._ids = itertools.count(1)
        self._rest = b""
        self._events: list[dict[str, Any]] = []
        arguments = [
            program,
            "--headless=new",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
            "--no-first-run",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-extensions",
            "--disable-background-networking",
            "--hide-scrollbars",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            "about:blank",
        ]
        theirs = [fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (commands, answers)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, *map(str, theirs), *arguments],
            pass_fds=theirs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for each in (commands, answers, *theirs):
            os.close(each)
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session: str | None = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._page(f"{domain}.enable")

    def open(self, path: Path, width: int, height: int, scheme: str) -> list[str]:
        """Open a file in a window of a size and a colour scheme; what the browser complained of."""
        phone = width < 600
        self._page(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._page("Emulation.setEmulatedMedia", features=[feature])
        self._events.clear()
        self._page("Page.navigate", url=path.absolute().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._events.append(self._message())
        self.run("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        return [self._complaint(event) for event in self._events if self._complaint(event)]

    def requests(self) -> list[str]:
        """Addresses that the open page has asked for, its own first."""
        return [
            event["params"]["request"]["url"]
            for event in self._events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self._page(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """The window as a PNG, or the whole page."""
        answer = self._page("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=10)
        os.close(self._read)
        os.close(self._write)

    def _page(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._call(method, parameters, self._session)

    def _call(
        self, method: str, parameters: dict[str, Any], session: str | None = None
    ) -> dict[str, Any]:
        number = next(self._ids)
        content = {"id": number, "method": method, "params": parameters}
        if session is not None:
            content["sessionId"] = session
        os.write(self._write, json.dumps(content).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self._events.append(message)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._read, 1 << 16)
            if not piece:
                raise EOFError("the browser is gone")
            self._rest += piece
        text, _, self._rest = self._rest.partition(b"\0")
        return json.loads(text)

    @staticmethod
    def _complaint(event: dict[str, Any]) -> str:
        """An error or warning of the console, an exception, a refusal; else nothing."""
        parameters = event.get("params", {})
        if event["method"] == "Log.entryAdded":
            return parameters["entry"]["text"]
        if event["method"] in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            return json.dumps(parameters)
        if event["method"] == "Network.loadingFailed":
            return parameters["errorText"]
        return ""

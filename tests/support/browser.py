"""A headless Chromium, driven over a pipe by its own protocol (https://chromedevtools.github.io/devtools-protocol)."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
WAIT_S = 60.0


def chromium() -> str | None:
    """Return the path of the machine's Chromium, None without one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one page.

    Attributes
    ----------
    complaints : list of str
        Errors on the console, exceptions, and what the page's policy refused.
    requests : list of str
        Every address the page asked for, itself included.
    """

    def __init__(self, program: str, profile: Path) -> None:
        self._profile, self._n, self._rest = profile, 0, b""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        their_in, self._write = os.pipe()
        self._read, their_out = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        command = [program, *options, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        # Chromium reads from descriptor 3 and writes to 4, whatever ours are called.
        shell = f'exec 3<&{their_in} 4>&{their_out}; exec "$@"'
        log = (profile / "browser.log").open("w")
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "browser", *command], pass_fds=(their_in, their_out), stdout=log, stderr=log
        )
        log.close()
        os.close(their_in)
        os.close(their_out)
        self._session: str | None = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)
        os.close(self._write)
        os.close(self._read)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the browser's answer to a command."""
        self._n += 1
        message: dict[str, Any] = {"id": self._n, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            said = self._message()
            if said.get("id") == self._n:
                if "error" in said:
                    raise RuntimeError(f"{method}: {said['error']}")
                answer: dict[str, Any] = said["result"]
                return answer
            self._note(said)

    def open(self, page: Path, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Open a page at a size, in light or dark, and wait until it has drawn everything."""
        self.complaints.clear()
        self.requests.clear()
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=page.as_uri())
        self.wait_for("document.readyState === 'complete'")

    def run(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        said = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in said:
            raise RuntimeError(f"{expression}: {said['exceptionDetails']['text']}")
        return said["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until an expression is true in the page."""
        until = time.monotonic() + WAIT_S
        while not self.run(expression):
            if time.monotonic() > until:
                raise TimeoutError(f"{expression} did not come true: {self.complaints}")
            time.sleep(0.05)

    def picture(self, path: Path) -> None:
        """Save a picture of the whole page."""
        said = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(said["data"]))

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._read, 2**20)
            if not more:
                raise RuntimeError(f"the browser has gone: {(self._profile / 'browser.log').read_text()[-2000:]}")
            self._rest += more
        whole, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(whole)
        return message

    def _note(self, said: dict[str, Any]) -> None:
        method, about = said.get("method"), said.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.complaints.append(str(details.get("exception", {}).get("description") or details["text"]))
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(arg.get("value") or arg.get("description")) for arg in about["args"]))
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.complaints.append(about["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])

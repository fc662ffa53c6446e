# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window, driven through the DevTools protocol over two pipes: no package needed."""
from __future__ import annotations

import base64
import itertools
import json
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
import zlib
from pathlib import Path

EXECUTABLE = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

#: The modifier keys by the protocol's bits.
ALT, CTRL, META, SHIFT = 1, 2, 4, 8
#: What a key's code is where its name does not say so.
KEY_CODES = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "PageUp": 33, "PageDown": 34, "End": 35, "Home": 36,
             "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


def page_data(page: Path) -> dict:
    """What a page was made of: as JSON, or packed where there is much of it."""
    text = re.search(r'id="vramscope-data">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL).group(1)
    if text.startswith("deflate:"):
        text = zlib.decompress(base64.b64decode(text.removeprefix("deflate:")), -15).decode()
    return json.loads(text)


class BrowserError(AssertionError):
    """What the page or the browser said instead of an answer."""


class Browser:
    """One tab. `with Browser() as browser: browser.open(path)`."""

    def __init__(self, width: int = 1280, height: int = 1600, flags: tuple[str, ...] = ()):
        self.profile = tempfile.TemporaryDirectory(prefix="vramscope-chromium-", ignore_cleanup_errors=True)
        to_child, self.write_end = os.pipe()
        self.read_end, from_child = os.pipe()

        def join_pipes():  # Chromium reads file descriptor 3 and writes 4.
            lent = [os.dup2(fd, 100 + fd) for fd in (to_child, from_child)]
            for fd, wanted in zip(lent, (3, 4)):
                os.dup2(fd, wanted)

        self.process = subprocess.Popen(
            [EXECUTABLE, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
             f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}", "--remote-debugging-pipe", *flags,
             "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=join_pipes)
        os.close(to_child)
        os.close(from_child)
        self.numbers = itertools.count(1)
        self.unread = b""
        self.session = None
        #: Uncaught errors and refused requests since the page was opened.
        self.complaints: list[str] = []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        os.close(self.write_end)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read_end)
        self.profile.cleanup()

    # ---- the protocol ----

    def call(self, method: str, timeout: float = 60, **parameters):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while True:
            answer = self.read(deadline, method)
            if answer.get("id") == number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def read(self, deadline: float, what: str) -> dict:
        while b"\0" not in self.unread:
            if not select.select([self.read_end], [], [], max(0, deadline - time.monotonic()))[0]:
                raise BrowserError(f"the browser did not answer: {what}")
            piece = os.read(self.read_end, 1 << 20)
            if not piece:
                raise BrowserError(f"the browser ended: {what}")
            self.unread += piece
        line, _, self.unread = self.unread.partition(b"\0")
        message = json.loads(line)
        self.note(message)
        return message

    def note(self, message: dict):
        method, told = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Network.requestWillBeSent" and told["request"]["url"].startswith(("http:", "https:")):
            self.complaints.append(f"asks the network for {told['request']['url']}")

    # ---- what a reader does ----

    def open(self, page: Path | str, fragment: str = "", ready: str = "document.documentElement.dataset.ready === '1'"):
        self.complaints.clear()
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=f"file://{page}{'#' + fragment if fragment else ''}")
        deadline = time.monotonic() + 60
        while not self.run(f"location.protocol === 'file:' && document.readyState === 'complete' && ({ready})"):
            if self.complaints or time.monotonic() > deadline:
                raise BrowserError(f"{page} did not become ready: {self.complaints}")
            time.sleep(0.02)
        self.settle()

    def run(self, expression: str, timeout: float = 60):
        """The value of an expression; a promise is awaited."""
        answer = self.call("Runtime.evaluate", timeout, expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def act(self, body: str, timeout: float = 60):
        """What the body of an async function returns."""
        return self.run(f"(async () => {{ {body} }})()", timeout)

    def settle(self):
        """Until what was asked for is drawn, also what waits until the browser is idle."""
        self.run("""new Promise((go) => requestAnimationFrame(() => setTimeout(() => requestAnimationFrame(function look() {
          if (document.querySelector('[aria-busy="true"]')) requestAnimationFrame(look);
          else requestAnimationFrame(() => setTimeout(go, 0)); }), 60)))""")

    def resize(self, width: int, height: int, mobile: bool = False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.call("Emulation.setTouchEmulationEnabled", enabled=mobile)

    def media(self, kind: str = "", **features: str):
        """`media("print")`, `media(prefers_color_scheme="dark")`; nothing: as it was."""
        told = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", media=kind, features=told)

    def key(self, name: str, modifiers: int = 0):
        text = {"Enter": "\r"}.get(name, name if len(name) == 1 else "")
        code = KEY_CODES.get(name, ord(name.upper()) if len(name) == 1 else 0)
        same = {"key": name, "modifiers": modifiers, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **same, **({"text": text} if text and not modifiers & ~SHIFT else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **same)

    def mouse(self, kind: str, x: float, y: float, **more):
        """`kind`: Pressed, Released, Moved, Wheel."""
        self.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **more)

    def click(self, x: float, y: float):
        self.mouse("Pressed", x, y, button="left", clickCount=1)
        self.mouse("Released", x, y, button="left", clickCount=1)

    def screenshot(self, path: Path | str, whole: bool = True):
        """A PNG of the page, or of what is in sight."""
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(picture["data"]))

    def print_pdf(self, path: Path | str):
        picture = self.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)
        Path(path).write_bytes(base64.b64decode(picture["data"]))

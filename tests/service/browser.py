"""A headless Chromium, driven over its DevTools pipe: no driver program and no library in between."""
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find():
    """The program, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page. `problems` collects exceptions, errors of the console (refused by the policy of the page, too) and requests
    that left the origin."""

    def __init__(self, program, width=1440, height=900):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="nt-browser-"))
        self.downloads = self.dir / "downloads"
        self.downloads.mkdir()
        down, self.write = os.pipe()
        self.read, up = os.pipe()
        words = [program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
                 "--hide-scrollbars", f"--user-data-dir={self.dir / 'profile'}", "about:blank"]
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        env.update(HOME=str(self.dir), XDG_CONFIG_HOME=str(self.dir), XDG_CACHE_HOME=str(self.dir))
        with open(self.dir / "log", "wb") as log:
            self.process = subprocess.Popen(["sh", "-c", f'exec "$@" 3<&{down} 4>&{up}', "sh", *words], pass_fds=(down, up), env=env,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        os.close(down)
        os.close(up)
        self.said, self.next, self.session, self.problems, self.origin = b"", 0, None, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        session, self.session = self.session, None
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads))
        self.session = session
        self.size(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.session = None
            self.call("Browser.close")
        except (AssertionError, OSError):
            pass
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read)
        os.close(self.write)
        shutil.rmtree(self.dir, ignore_errors=True)

    # --- the protocol

    def call(self, method, **params):
        self.next += 1
        message = {"id": self.next, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + 60
        while True:
            answer = self.message(end)
            if answer.get("id") == self.next:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def message(self, end):
        while b"\0" not in self.said:
            ready, _, _ = select.select([self.read], [], [], max(0, end - time.monotonic()))
            assert ready, f"the browser is silent: {(self.dir / 'log').read_text()[-2000:]}"
            piece = os.read(self.read, 1 << 20)
            assert piece, f"the browser is gone: {(self.dir / 'log').read_text()[-2000:]}"
            self.said += piece
        line, self.said = self.said.split(b"\0", 1)
        got = json.loads(line)
        self.note(got.get("method"), got.get("params", {}))
        return got

    def note(self, method, params):
        if method == "Runtime.exceptionThrown":
            d = params["exceptionDetails"]
            self.problems.append(d.get("exception", {}).get("description", d["text"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.problems.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if self.origin and not url.startswith((self.origin, f"blob:{self.origin}", "data:", "about:")):
                self.problems.append(f"a request to {url}")

    # --- the page

    def eval(self, text):
        """The value of an expression; a promise is awaited."""
        got = self.call("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in got, (text, got["exceptionDetails"])
        return got["result"].get("value")

    def wait(self, text, timeout=30):
        """Until the expression is true; its value. What it names may not be there yet."""
        end = time.monotonic() + timeout
        while True:
            got = self.eval(f"(() => {{ try {{ return ({text}); }} catch {{ return null; }} }})()")
            if got not in (None, False, 0, ""):  # an element comes as {}
                return got
            assert time.monotonic() < end, (text, self.eval("document.body.innerText.slice(0, 3000)"), self.problems)
            time.sleep(0.05)

    def go(self, url):
        self.origin = "/".join(url.split("/")[:3])
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def size(self, width, height=900):
        """Of the page, also below the least width of a window."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def prefers(self, scheme="light", motion="no-preference"):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme},
                                                          {"name": "prefers-reduced-motion", "value": motion}])

    def press(self, key):
        code = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **(text if kind == "keyDown" else {}))

    def type(self, text):
        self.call("Input.insertText", text=text)

    def click(self, selector):
        """As a person would: the middle of what is to be seen of it."""
        at = self.wait(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null; "
                       "e.scrollIntoView({block: 'center', behavior: 'instant'}); const r = e.getBoundingClientRect(); "
                       "return r.width > 0 ? [r.x + r.width / 2, r.y + r.height / 2] : null; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)

    def shot(self, path, whole=True):
        box = self.call("Page.getLayoutMetrics")["cssContentSize"] if whole else None
        clip = {"clip": {"x": 0, "y": 0, "width": box["width"], "height": min(box["height"], 9000), "scale": 1}} if whole else {}
        got = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **clip)
        pathlib.Path(path).write_bytes(base64.b64decode(got["data"]))

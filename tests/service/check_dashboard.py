"""check_dashboard.py PART [NCCLTUNE]: the dashboard's files, and the dashboard in a browser on real recordings.

    files    what is vendored is what its README says; nothing of ours parses data as markup or stands inline
    served   each file by the service: type, policy, ETag, without a token; the list of forms is that of the command line
    backends a profile that gives sizes to other backends: who moves the bytes, in plots, heat map and evidence
    browser  a person's way: token, job, progress, profile, plots, keys, download, a lost stream; 77 without Chromium
"""
import hashlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time

import browser
from daemon import Daemon

SOURCE = pathlib.Path(os.environ["NT_SOURCE_DIR"])
DASHBOARD = SOURCE / "tuner/service/dashboard"
ADMIN, READER = "dashboard-admin-token", "dashboard-reader-token"
NAME = "<img/src=x/onerror=alert(1)>"  # of a token: shown as it is, never parsed
RIG = "[rig sockets]\nrig = recording:nccl-sockets-r2-h200-20261129-a\ngpus = none\n"
PAGES = ["/", "/jobs", "/jobs/1", "/profiles", "/profiles/1", "/machines", "/machines/1", "/doctor"]
DONE = "!document.querySelector('main').hasAttribute('aria-busy') && document.querySelector('h1')"


def part_files():
    ours = [f for f in DASHBOARD.iterdir() if f.suffix in (".js", ".html", ".css")]
    assert len(ours) > 10, ours
    for f in ours:
        text = f.read_text()
        for bad in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "http://", "https://"):
            assert bad not in text, f"{f.name}: {bad}"
        for name in re.findall(r"(?:from|import) '\./([^']+)'", text):
            assert (DASHBOARD / name).exists(), f"{f.name} imports {name}"
    page = (DASHBOARD / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)", page), "something stands inline"
    for url in re.findall(r'(?:src|href)="/([^"]+)"', page):
        assert (DASHBOARD / url).exists(), url
    readme = (DASHBOARD / "vendor/README.txt").read_text()
    vendored = [f for f in (DASHBOARD / "vendor").iterdir() if f.suffix != ".txt"]
    for f in vendored:
        assert f.name in readme and hashlib.sha256(f.read_bytes()).hexdigest() in readme, f"{f.name} is not as its README says"
        assert f.stat().st_size < 250000
    assert vendored and (DASHBOARD / "vendor/LICENSE.txt").exists()


def part_served():
    types = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain"}
    with Daemon(sys.argv[2], "others = none\n[watch]\ninterval = 0\n").start() as d:
        files = [f for f in DASHBOARD.rglob("*") if f.is_file()]
        for f in files:
            path = "/" + f.relative_to(DASHBOARD).as_posix().replace("index.html", "")
            status, data = d.ask("GET", path, raw=True)
            assert status == 200 and data == f.read_bytes(), path
            assert d.headers["Content-Type"].startswith(types[f.suffix]), (path, d.headers)
            policy = d.headers["Content-Security-Policy"]
            assert "script-src 'self'" in policy and "default-src 'none'" in policy and "frame-ancestors 'none'" in policy, policy
            assert "unsafe" not in policy, policy
            assert d.ask("GET", path, headers={"If-None-Match": d.headers["ETag"]}, raw=True)[0] == 304
        assert len(files) > 10
        assert d.ask("GET", "/nothing.js")[0] == 404 and d.ask("POST", "/", {})[0] in (404, 405)
        forms = d.get("/v1/formats")["formats"]
        said = subprocess.run([sys.argv[2], "export", "--help"], capture_output=True, text=True, check=True).stdout
        assert len(forms) >= 10 and all(f["name"] in said and f["help"] for f in forms), forms


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def serve(d, port):
    d.start("--listen", f"unix:{d.sock},127.0.0.1:{port}")
    assert d.process.stdout.readline().startswith("listening at 127.0.0.1:")
    return d


def show(b, path):
    b.eval(f"location.hash = '#{path}'")
    b.wait(f"location.hash === '#{path}' && {DONE}")


def text(b):
    return b.eval("document.querySelector('main').innerText")


def give(b, token):
    """Types a token into the question for it."""
    b.wait("document.querySelector('#ask').open")
    b.eval("document.querySelector('#ask-token').focus()")
    b.type(token)
    b.press("Enter")


def pure(b):
    """The modules without a page."""
    b.eval("(async () => { window.m = {}; for (const n of ['format', 'model', 'stream', 'plot']) m[n] = await import(`/${n}.js`); })()")
    for expression, want in [
            ("m.format.bytes(256)", "256 B"), ("m.format.bytes(3670016)", "3.5 MiB"), ("m.format.shortBytes(65536)", "64K"),
            ("m.format.time(45453.1)", "45.5 µs"), ("m.format.time(2.5e6)", "2.50 ms"), ("m.format.time(NaN)", "–"),
            ("m.format.gain(-0.123)", "\u221212.3 %"), ("m.format.gain(0.0001)", "0.0 %"), ("m.format.interval(0.01, 0.2)", "+1.0 to +20.0 %"),
            ("m.model.shade(0.3)", "g4"), ("m.model.shade(-0.9)", "l5"), ("m.model.shade(0.019)", "z"), ("m.format.p(0.00001)", "< 0.0001"),
    ]:
        assert b.eval(expression) == want, (expression, b.eval(expression))
    events = b.eval("(() => { const p = new m.stream.EventParser(); return ['id: 7\\nev', 'ent: job\\ndata: {\"a\"', ': 1}\\n', '\\n: \\n\\nda',"
                    "'ta: x\\ndata: y\\n\\n'].map((piece) => p.feed(piece)); })()")
    assert [len(e) for e in events] == [0, 0, 0, 1, 1], events
    assert events[3][0] == {"id": "7", "kind": "job", "data": '{"a": 1}'} and events[4][0]["data"] == "x\ny", events
    made = b.eval("""(() => {
      const c = (bytes, verdict, more) => ({coll: 'all_reduce', mode: 'eager', bytes, verdict, default_ns: 100, setting: 'default', ...more});
      const v = (setting, gain) => ({stage: 'race', place: 'out', collective: 'all_reduce', mode: 'eager', bytes: 512, setting,
        default_us: 0.1, tuned_us: 0.1 * (1 - gain), gain_pct: 100 * gain, lo_pct: 0, hi_pct: 0, verdict: 'winner', reason: ''});
      const profile = {products: {table: {classes: [c(1024, 'tuned', {setting: 'a', tuned_ns: 75, gain: 0.25, interval: [0.2, 0.3]}),
        c(512, 'default'), c(2048, 'kept', {setting: 'k', tuned_ns: 100, gain: 0, interval: [-0.01, 0.01]})]}, static: {classes: []}}};
      const [f] = m.model.figures(profile, [v('default', 0), v('b', -2), v('a', 0.1)], []);
      const s = m.model.series(f), h = m.model.heat(f);
      return {sizes: f.sizes, names: s.map((x) => x.name), tuned: s[1].points[0], rows: h.rows.map((r) => r.setting),
        taken: h.rows[0].cells.get(1024).gain, kept: [...h.taken.get(2048)], best: m.model.summary(profile).best.bytes,
        none: m.model.figures(null, [], []).length}; })()""")
    assert made["sizes"] == [512, 1024, 2048] and made["kept"] == ["k"] and made["names"] == ["default", "profile", "a"], made  # b is too slow to be drawn
    assert made["rows"] == ["a", "k", "b"] and made["taken"] == 0.25 and made["best"] == 1024 and made["none"] == 0, made
    assert abs(made["tuned"]["lo"] - 70) < 1e-9 and abs(made["tuned"]["hi"] - 80) < 1e-9, made


def enter(b, url):
    """Without a token nothing is shown; a wrong one is told from none; the page says what became of giving up."""
    b.go(url)
    give(b, "dashboard-wrong-token")
    b.wait("document.querySelector('#ask').open && /does not know/.test(document.querySelector('#ask-why').textContent)")
    b.press("Escape")
    b.wait("/could not be shown/.test(document.querySelector('h1')?.textContent)")
    b.click('[data-focus="Another token"]')
    give(b, ADMIN)
    b.wait(f"{DONE} && document.querySelector('h1').textContent === 'Overview'")
    b.wait("document.querySelector('#state').textContent === 'live'")
    for words in ("No jobs yet.", "No profile yet", "No job has run yet."):
        assert words in text(b), (words, text(b))
    assert NAME in b.eval("document.querySelector('#foot').textContent")


def run_job(b):
    """A job by the form, watched until it is over."""
    show(b, "/jobs")
    b.eval("""(() => { window.seen = []; new MutationObserver(() => {
      const row = document.querySelector('.stack tbody tr');
      const now = `${row?.querySelector('.tag')?.textContent ?? ''} ${row?.querySelector('progress') ? 'bar' : ''}`.trim();
      if (now && seen.at(-1) !== now) seen.push(now);
    }).observe(document.querySelector('main'), {subtree: true, childList: true, characterData: true}); })()""")
    b.click("#job-go")
    b.wait("[...document.querySelectorAll('.stack .tag')].some((t) => t.textContent === 'done')", timeout=120)
    seen = b.eval("window.seen")
    assert "running bar" in seen and seen[-1] == "done", seen
    assert NAME in text(b), "who asked"
    show(b, "/jobs/1")
    b.click("#job-profile")
    b.wait(f"{DONE} && document.querySelector('h1').textContent === 'Profile 1'")


def look_at_profile(b):
    b.wait("[...document.querySelectorAll('.plot canvas')].length === 2 && [...document.querySelectorAll('.plot canvas')].every((c) => Chart.getChart(c))")
    drawn = b.eval("[...document.querySelectorAll('.plot canvas')].map((c) => Chart.getChart(c).data.datasets.filter((d) => d.pointHitRadius > 0).length)")
    assert all(n >= 4 for n in drawn), drawn  # default, profile and two others at least
    inked = b.eval("(() => { const c = document.querySelector('.plot canvas'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
                   "let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; })()")
    assert inked > 2000, inked
    rows = b.eval("[...document.querySelectorAll('.plot ~ details table')].map((t) => t.tBodies[0].rows.length)")
    assert len(rows) == 2 and all(n == 19 for n in rows), rows  # each plot has its table
    assert b.eval("document.querySelectorAll('.heat td.g5, .heat td.g4').length") > 0
    b.click("[aria-controls^=evidence]")
    assert "all_reduce_perf" in b.eval("document.querySelector('.below:not([hidden])').innerText")
    # By keys: through the values of a plot, through the cells of the heat map, a line off and on.
    b.eval("document.querySelector('.plot').focus()")
    b.press("ArrowRight")
    b.press("ArrowRight")
    said = b.eval("document.querySelector('.plot ~ .says').textContent")
    assert said.startswith("512 B: default: ") and "profile [" in said, said
    b.eval("document.querySelector('.heat td[tabindex=\"0\"]').focus()")
    b.press("ArrowRight")
    b.press("ArrowDown")
    at = b.eval("[document.activeElement.cellIndex, document.activeElement.parentNode.rowIndex, document.querySelectorAll('.heat td[tabindex=\"0\"]').length]")
    assert at == [2, 2, 1], at
    assert b.eval("document.activeElement.getAttribute('aria-label').includes(' at 512 B: ')")
    b.click(".key.tuned")
    assert b.eval("document.querySelector('.key.tuned').getAttribute('aria-pressed')") == "false"
    b.click(".key.tuned")
    b.click(".tab:nth-of-type(2)")
    b.wait("document.querySelector('figcaption').textContent.includes('graph')")


def download(b, d):
    """Not without the word for a functional rig; then the very bytes of the API."""
    b.click("[data-format=env]")
    b.wait("document.querySelector('section [role=alert]:not(:empty)')")
    assert "recording" in text(b)
    b.click("#allow")
    b.click("[data-format=env]")
    end = time.monotonic() + 20
    while not list(b.downloads.glob("*.env")):
        b.eval("1")  # lets events in
        assert time.monotonic() < end, list(b.downloads.iterdir())
        time.sleep(0.05)
    got = next(b.downloads.glob("*.env"))
    want = d.ask("GET", "/v1/profiles/1/export/env?allow_rig=recording&product=table", raw=True)[1]
    assert got.name == "nccltune-1.env" and got.read_bytes() == want and b"NCCL_TUNER_PLUGIN=" in want, got.read_text()


def history(b):
    """A profile that nobody checked says so; a change stands in the table and at its place in the plot."""
    assert "It was not checked yet" in text(b) or "No check measured a row yet." in text(b)
    checks = [{"check": 10 + i, "at": "2026-01-01 00:00:00", "verdict": "holds" if i < 6 else "drifted", "gain": 0.2 if i < 6 else 0.05, "rows": 3,
               "copy_gbps": None, "launch_us": 2.5, "nccl": "2.28.9", "driver": "580"} for i in range(12)]
    change = {"last_good": 15, "first_bad": 16, "kind": "step", "gain_before": 0.2, "gain_after": 0.05, "p": 0.001, "differs": "driver 580, was 570"}
    b.eval("(() => { window.real = fetch; window.fetch = (url, how) => (String(url).endsWith('/checks') ? Promise.resolve(new Response("
           f"{json.dumps(json.dumps({'checks': checks, 'changes': [change]}))})) : real(url, how)); }})()")
    show(b, "/profiles")
    show(b, "/profiles/1")
    b.wait("[...document.querySelectorAll('.plot canvas')].length === 3 && !!Chart.getChart([...document.querySelectorAll('.plot canvas')].at(-1))")
    assert b.eval("Chart.getChart([...document.querySelectorAll('.plot canvas')].at(-1)).options.plugins.marks.at") == [6.5]
    turn = b.eval("[document.querySelector('.turn').innerText, document.querySelector('.turn').nextElementSibling.cells[0].textContent]")
    assert "A step is here: from +20.0 % to +5.0 %" in turn[0] and "was 570" in turn[0] and turn[1] == "16", turn
    b.eval("(() => { window.fetch = window.real; })()")


def every_page(b):
    """Wide and narrow, light and dark: nothing is wider than the page, everything reachable has a name."""
    for width, scheme in ((1440, "dark"), (390, "light")):
        b.size(width)
        b.prefers(scheme, "reduce")
        for path in PAGES:
            show(b, path)
            assert b.eval("document.documentElement.scrollWidth") <= width, (path, width)
            nameless = b.eval("[...document.querySelectorAll('button, a, input, select, [role=img], [role=region]')].filter((e) => !(e.innerText"
                              "|| e.getAttribute('aria-label') || e.labels?.length)).map((e) => e.outerHTML)")
            assert nameless == [], (path, nameless)
            assert b.eval("document.querySelectorAll('h1').length") == 1 and b.eval("document.title").endswith("nccltune"), path
    b.size(1440)
    b.eval("document.querySelector('.brand').focus()")
    for name in ("Overview", "Jobs", "Profiles", "Machines"):
        b.press("Tab")
        at = b.eval("[document.activeElement.textContent, getComputedStyle(document.activeElement).outlineStyle]")
        assert at == [name, "solid"], at
    b.press("Enter")
    b.wait(f"location.hash === '#/machines' && {DONE} && document.activeElement.tagName === 'H1'")
    b.eval("document.querySelector('.skip').focus()")
    b.press("Enter")
    assert b.eval("document.activeElement.id") == "content" and b.eval("location.hash") == "#/machines"
    for path, words in (("/profiles/99", "There is no profile 99."), ("/jobs/99", "99"), ("/nowhere", "There is no page /nowhere.")):
        show(b, path)
        assert words in text(b) and "could not be shown" in text(b), (path, text(b))


def lose_the_service(b, d, port):
    show(b, "/jobs")
    assert d.stop() == 0
    b.wait("document.querySelector('#state').classList.contains('lost')")
    assert "sockets" in text(b)  # what was there stays
    serve(d, port)
    b.wait("document.querySelector('#state').classList.contains('live')")
    d.post("/v1/jobs", {"rig": "sockets", "sizes": "4K", "effort": "quick"}, 201)
    b.wait("document.querySelectorAll('.stack tbody tr').length === 2")


def as_reader(b, url):
    b.eval(f"sessionStorage.setItem('nccltune-token', '{READER}')")
    b.go(url + "?again")
    b.wait(f"{DONE} && document.querySelector('h1').textContent === 'Overview'")
    show(b, "/jobs")
    assert b.eval("document.querySelector('#new-job')") is None and "Your role is read" in text(b)
    show(b, "/doctor")
    assert "your role does not reach" in text(b)


def backends_job(d):
    """A job of the made-up machine, on which other backends win some sizes."""
    probe = pathlib.Path(sys.argv[2]).resolve().parents[2] / "tests/e2e/world_probe"
    words = ["tune", "--db", d.db, "--out", d.dir / "p.json", "--rig", "nccl", "--probe", probe, "--ranks", "2", "--sizes", "1K,128K,1M,4M",
             "--pairs", "8", "--effort", "quick", "--backends", "nccl,nccl-symmetric,ipc,host-memory"]
    subprocess.run([sys.argv[2], *map(str, words)], env=d.environment(), cwd=d.dir, check=True, capture_output=True, timeout=200)
    return json.loads((d.dir / "p.json").read_text())["backends"]


def look_at_backends(b, found):
    show(b, "/profiles/1")
    b.wait("[...document.querySelectorAll('.plot canvas')].length === 2 && [...document.querySelectorAll('.plot canvas')].every((c) => Chart.getChart(c))")
    lines = b.eval("[...document.querySelector('.legend').children].map((k) => k.innerText)")
    assert lines[0] == "nccl default" and "backends, profile" in lines, lines
    assert {"ipc", "nccl-symmetric"} <= {x.split()[0] for x in lines}, lines  # host-memory is far too slow to be drawn
    # A row of the heat map for each setting of each backend; framed is what moves the bytes, and what NCCL is told.
    heat = dict(b.eval("[...document.querySelectorAll('.heat tbody tr')].map((tr) => [tr.cells[0].innerText, [...tr.cells].slice(1).map((td) => "
                       "td.classList.contains('taken'))])"))
    eager = [c for c in found["classes"] if c["mode"] == "eager"]
    assert len(eager) == 4 and all(c["verdict"] == "tuned" for c in eager), eager
    for i, c in enumerate(eager):
        assert heat[c["setting"]][i], (c["setting"], heat)
    assert any(name.startswith("nccl ") for name in heat), heat
    # The evidence: who moves each size, and how long each backend takes.
    rows = b.eval("[...document.querySelectorAll('[aria-controls^=evidence]')].map((e) => [...e.closest('tr').cells].slice(0, 3).map((c) => c.innerText))")
    assert [r[1] for r in rows] == [c["setting"] for c in eager] and all("µs" in r[2] for r in rows), rows
    b.click("[aria-controls^=evidence]")
    times = dict(b.eval("[...document.querySelectorAll('.below:not([hidden]) .rivals tbody tr')].map((tr) => [tr.cells[0].innerText, tr.cells[2].innerText])"))
    assert set(times) == {"nccl", "nccl-symmetric", "ipc", "host-memory"} and all("µs" in t for t in times.values()), times
    said = b.eval("document.querySelector('.below:not([hidden])').innerText")
    assert "In 8 pairs: ipc one_shot" in said and "against default" in said, said
    assert "moved by another backend" in text(b).lower()


def part_backends():
    program = browser.find()
    if program is None:
        print("skipped: the dashboard is tested in Chromium, which is not here: apt-get install chromium")
        return 77
    port = free_port()
    with Daemon(sys.argv[2], "tokens = @/tokens\n[watch]\ninterval = 0\n") as d:
        found = backends_job(d)
        (d.dir / "tokens").write_text(f"admin {ADMIN}\n")
        (d.dir / "tokens").chmod(0o600)
        serve(d, port)
        with browser.Browser(program) as b:
            b.go(f"http://127.0.0.1:{port}/")
            give(b, ADMIN)
            b.wait(f"{DONE} && document.querySelector('h1').textContent === 'Overview'")
            for width, scheme in ((1440, "light"), (390, "dark")):
                b.size(width)
                b.prefers(scheme, "reduce")
                show(b, "/jobs")
                look_at_backends(b, found)
                assert b.eval("document.documentElement.scrollWidth") <= width, width
                if "NT_SCREENSHOTS" in os.environ:
                    b.shot(pathlib.Path(os.environ["NT_SCREENSHOTS"]) / f"backends-{width}-{scheme}.png")
            assert not [p for p in b.problems if "401" not in p], b.problems
    return 0


def part_browser():
    program = browser.find()
    if program is None:
        print("skipped: the dashboard is tested in Chromium, which is not here: apt-get install chromium")
        return 77
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    with Daemon(sys.argv[2], "tokens = @/tokens\n[watch]\ninterval = 0\n" + RIG) as d:
        (d.dir / "tokens").write_text(f"admin {ADMIN} {NAME}\nread {READER}\n")
        (d.dir / "tokens").chmod(0o600)
        serve(d, port)
        with browser.Browser(program) as b:
            enter(b, url)
            pure(b)
            run_job(b)
            look_at_profile(b)
            download(b, d)
            history(b)
            every_page(b)
            lose_the_service(b, d, port)
            as_reader(b, url)
            expected = re.compile(r"^Failed to load resource: .*(40[1349]|ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE)")
            strange = [p for p in b.problems if not expected.match(p)]
            assert not strange, strange
            assert b.eval("document.querySelectorAll('img').length") == 0
    return 0


if __name__ == "__main__":
    sys.exit({"files": part_files, "served": part_served, "backends": part_backends, "browser": part_browser}[sys.argv[1]]() or print("ok"))

#!/usr/bin/env python3
"""check_service.py PART NCCLTUNE MAKE_RECORDING: the service with real children, clients and enemies."""
import gzip
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
from daemon import SOURCE, Daemon, Unix

NCCLTUNE, MAKE = map(os.path.abspath, sys.argv[2:4])
SANITIZED = not {"asan", "tsan"}.isdisjoint(pathlib.Path(NCCLTUNE).parts)  # the presets' folders: slower and larger
RIG = "[rig replay]\nrig = recording:@/r.csv.gz\ngpus = none\neffort = quick\n"
TOKENS = "read read-token-0000000 r\nsubmit submit-token-0000000 s\nadmin admin-token-0000000 a\n"


def make(config=RIG, recording=True):
    d = Daemon(NCCLTUNE, config)
    if recording:
        subprocess.run([MAKE, "r.csv.gz", "4", "4K"], cwd=d.dir, check=True)
    return d


def bearer(word):
    return {"Authorization": f"Bearer {word}-token-0000000"}


def part_api():
    with make().start() as d:
        assert d.get("/healthz")["status"] == "ok"
        server = d.get("/v1/server")
        assert server["you"]["role"] == "admin" and server["rigs"][0]["name"] == "replay", server
        assert "r.csv.gz" not in json.dumps(server)  # no paths of this machine
        assert d.get("/v1/jobs") == {"jobs": []} and d.get("/v1/profiles") == {"profiles": []}
        job = d.post("/v1/jobs", {"rig": "replay", "priority": 3, "modes": ["eager"], "seed": 7}, 201)
        assert job["ask"] == {"modes": ["eager"], "seed": 7} and job["priority"] == 3
        done = d.wait(job["id"])
        assert done["state"] == "done" and done["profile"] == 1 and done["run"] == 1, done
        bad_asks(d)
        profile = d.get("/v1/profiles/1")
        assert profile["format"] == "nccltune-profile" and d.headers["ETag"]
        assert d.ask("GET", "/v1/profiles/1", headers={"If-None-Match": d.headers["ETag"]}, raw=True) == (304, b"")
        assert d.get("/v1/profiles/1") == profile  # and from memory
        forms(d)
        matches(d)
        states(d)
        views(d)
        queries(d)
        assert d.post("/v1/lint", {"text": "NCCL_ALGO=Ringg\n", "name": "nccl.conf"})["errors"] == 1
        assert d.ask("POST", "/v1/lint", {"text": "x", "form": "no"})[0] == 400
        assert d.get("/v1/profiles/1/decide?collective=all_reduce&bytes=4096")["product"] == "table"
        assert "verdict" in d.get("/v1/doctor")
        assert d.get("/v1/runs/1")["spec"]["seed"] == 7 and len(d.get("/v1/runs")["runs"]) == 1
        assert d.ask("GET", "/v1/runs/9")[0] == 404
        assert d.get("/v1/topologies")["topologies"][0]["id"] == 1 and d.get("/v1/topologies/1")["id"] == 1
        assert "nccltune_http_requests_total" in d.ask("GET", "/metrics", raw=True)[1].decode()
        kinds = [e["kind"] for e in d.get("/v1/log")["events"]]
        assert "job" in kinds and "profile" in kinds, kinds
        printed = subprocess.run([NCCLTUNE, "serve", "--openapi"], capture_output=True, text=True, check=True)
        assert json.loads(printed.stdout) == d.get("/v1/openapi.json")
        assert d.stop() == 0
        assert "error" not in d.said(), d.said()


def bad_asks(d):
    for body, says in (({}, "rig: missing"), ({"rig": "none"}, "no rig 'none'"), ({"rig": "replay", "path": "/x"}, "path"),
                       ({"rig": "replay", "sizes": "1X"}, "sizes"), ({"rig": "replay", "modes": []}, "modes"),
                       ({"rig": "replay", "modes": ["fast"]}, "fast"), ({"rig": "replay", "effort": "all"}, "all"),
                       ({"rig": "replay", "priority": 1000}, "priority"), ({"rig": "replay", "budget_s": 0}, "budget_s"),
                       ({"rig": "replay", "kind": "rm"}, "rm"), ({"rig": 1}, "rig"), ([], "no JSON object"), ("{", "not JSON"),
                       ('{"rig":"a","rig":"b"}', "not JSON")):
        status, answer = d.ask("POST", "/v1/jobs", body, headers={"Content-Type": "application/json"})
        assert status == 400 and says in answer["error"]["message"], (body, answer)
    for method, path, status in (("GET", "/v1/jobs/77", 404), ("POST", "/v1/jobs/77/cancel", 404), ("POST", "/v1/jobs/1/cancel", 409),
                                 ("POST", "/v1/jobs/1/resume", 409), ("DELETE", "/v1/jobs/1", 405), ("GET", "/v2/jobs", 404),
                                 ("GET", "/v1/jobs/1x", 404), ("GET", "/v1/jobs?limit=0", 400), ("GET", "/v1/jobs?limt=1", 400),
                                 ("GET", "/v1/jobs?limit=1&limit=2", 400), ("GET", "/v1/jobs/%31", 200), ("GET", "/..%2f..%2fetc/passwd", 404)):
        assert d.ask(method, path, raw=True)[0] == status, (method, path)
    assert d.ask("POST", "/v1/jobs", '{"rig":"replay"}', headers={"Content-Type": "text/plain"})[0] == 415
    assert d.ask("POST", "/v1/jobs/1/cancel", "x=1", headers={"Content-Type": "application/x-www-form-urlencoded"}, raw=True)[0] == 415
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        assert d.ask("GET", "/v1/jobs", headers=headers)[0] == 403, headers
    assert d.ask("GET", "/v1/jobs", headers={"Origin": "http://localhost"})[0] == 200


def forms(d):
    rig = "?allow_rig=mps-sockets"
    names = subprocess.run([NCCLTUNE, "export", "--help"], capture_output=True, text=True, check=True).stdout
    names = names.split("one of: ")[1].split(")")[0].replace("\n", " ").replace(",", " ").split()
    assert len(names) >= 7, names
    (d.dir / "p.json").write_text(json.dumps(d.get("/v1/profiles/1")))
    for name in names:
        status, text = d.ask("GET", f"/v1/profiles/1/export/{name}{rig}", raw=True)
        cli = subprocess.run([NCCLTUNE, "export", "p.json", "--format", name, "--allow-rig", "mps-sockets", "--dir", d.dir],
                             capture_output=True, cwd=d.dir, env=d.environment())
        assert (status == 200) == (cli.returncode == 0), (name, status, text, cli.stderr)
        assert status != 200 or text == cli.stdout.replace(bytes(d.dir.resolve()), b"/etc/nccltune"), name
    status, answer = d.ask("GET", "/v1/profiles/1/export/env")
    assert status == 409 and "mps-sockets" in answer["error"]["message"], answer
    assert d.ask("GET", f"/v1/profiles/1/export/none{rig}")[0] == 404
    status, table = d.ask("GET", f"/v1/profiles/1/table{rig}", raw=True)
    import hashlib
    assert status == 200 and d.headers["ETag"].strip('"') == hashlib.sha256(table).hexdigest()


def matches(d):
    row = d.get("/v1/profiles")["profiles"][0]
    asked = f"/v1/profiles/match?identity={row['identity'] or 'x'}&ranks=4&allow_rig=mps-sockets"
    if not row["identity"]:
        assert not d.get(asked)["found"]
        return
    exact = d.get(f"{asked}&nccl={row['nccl']}")
    assert exact["found"] and exact["exact"] and exact["profile"]["id"] == 1, exact
    near = d.get(f"{asked}&nccl=2.99.9")
    assert near["found"] and not near["exact"] and "nccl" in near["notes"][0], near


def states(d):
    assert d.ask("PATCH", "/v1/profiles/1", {"state": "stale"})[0] == 400
    assert d.ask("PATCH", "/v1/profiles/1", {"state": "withheld", "why": "a try"})[1]["why"] == "a try, by uid %d" % os.getuid()
    status, answer = d.ask("GET", "/v1/profiles/1")
    assert status == 409 and "withheld: a try" in answer["error"]["message"], answer
    assert d.ask("PATCH", "/v1/profiles/1", {"state": "current"})[1]["state"] == "current"
    d.get("/v1/profiles/1")


def views(d):
    for v in d.get("/v1/views")["views"]:
        rows = d.get(f"/v1/views/{v['name']}?limit=5")
        assert len(rows["rows"]) <= 5 and rows["columns"], v
    assert d.ask("GET", "/v1/views/none")[0] == 404
    few, next_ = d.get("/v1/views/trials?job=1&limit=3"), d.get("/v1/views/trials?job=1&limit=3&offset=3")
    assert len(few["rows"]) == 3 and few["rows"] != next_["rows"]
    assert d.get("/v1/views/trials?job=99")["rows"] == []


def queries(d):
    assert d.post("/v1/query", {"sql": "SELECT count(*) AS n FROM job"}) == [{"n": 1}]
    endless = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT "
    for sql, status in (("DROP TABLE job", 400), ("SELECT 1; SELECT 2", 400), ("PRAGMA user_version", 400), ("ATTACH '/tmp/x' AS x", 400),
                        ("SELECT load_extension('x')", 400), ("SELECT nothing", 400), ("", 400), (endless + "max(n) FROM c", 409),
                        (endless + "group_concat(n || hex(n)) FROM c", 400), (endless + "json_group_array(n || hex(n)) FROM c", 409)):
        got, answer = d.ask("POST", "/v1/query", {"sql": sql})
        assert got == status or (got, status) in ((409, 400), (400, 409)) and sql.startswith(endless), (sql, got, answer)
    assert len(d.post("/v1/query", {"sql": "SELECT * FROM trials", "rows": 2})) == 2
    # What is cut off unasked would be taken for the whole.
    many = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {}) SELECT n FROM c"
    assert len(d.post("/v1/query", {"sql": many.format(1000)})) == 1000
    got, answer = d.ask("POST", "/v1/query", {"sql": many.format(1001)})
    assert got == 409 and "cut after 1000 rows: there are more; LIMIT" in str(answer), (got, answer)
    assert len(d.post("/v1/query", {"sql": many.format(1001), "rows": 1000})) == 1000
    (d.dir / "p.json").unlink()


def part_access():
    config = RIG.replace("[rig", "[server]\nlisten = unix:@/s, 127.0.0.1:0\ntokens = @/tokens\nothers = none\n[rig", 1)
    d = make(config)
    with d:
        (d.dir / "tokens").write_text(TOKENS)
        (d.dir / "tokens").chmod(0o600)
        text = (d.dir / "c.conf").read_text()
        (d.dir / "c.conf").write_text(text.split("\n", 2)[0] + "\n" + text.split("\n", 2)[2])  # the one listen
        d.start()
        port = int(d.places[1].rsplit(":", 1)[1])

        def tcp(method, path, headers=None, body=None):
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            c.request(method, path, body=json.dumps(body) if body is not None else None,
                      headers=dict(headers or {}, **({"Content-Type": "application/json"} if body is not None else {})))
            r = c.getresponse()
            data = r.read()
            c.close()
            return r.status, data
        for who, path, method, body, status in (
                (None, "/healthz", "GET", None, 200), (None, "/v1/openapi.json", "GET", None, 200), (None, "/v1/jobs", "GET", None, 401),
                (None, "/metrics", "GET", None, 401), ("read", "/v1/jobs", "GET", None, 200), ("read", "/metrics", "GET", None, 200),
                ("read", "/v1/jobs", "POST", {"rig": "replay"}, 403), ("submit", "/v1/jobs", "POST", {"rig": "none"}, 400),
                ("read", "/v1/doctor", "GET", None, 403), ("submit", "/v1/profiles/1", "PATCH", {"state": "retired"}, 403),
                ("admin", "/v1/profiles/1", "PATCH", {"state": "retired"}, 404), ("nobody", "/v1/jobs", "GET", None, 401)):
            got = tcp(method, path, bearer(who) if who else None, body)
            assert got[0] == status, (who, method, path, got)
        assert tcp("GET", "/v1/jobs", {"Authorization": "Bearer "})[0] == 401
        assert tcp("GET", "/v1/jobs", dict(bearer("read"), Host="evil.example"))[0] == 403
        (d.dir / "tokens").write_text(TOKENS.replace("read-", "raed-"))
        d.process.send_signal(signal.SIGHUP)
        d.until(lambda: tcp("GET", "/v1/jobs", bearer("read"))[0] == 401)
        assert d.get("/v1/server")["you"]["role"] == "admin"  # our own socket
        assert oct((d.dir / "s").stat().st_mode & 0o777) == "0o660"
        again = subprocess.run([NCCLTUNE, "serve", "--listen", f"unix:{d.sock}", "--db", "b.db"], cwd=d.dir, env=d.environment(),
                               capture_output=True, text=True, timeout=20)
        assert again.returncode == 1 and "another service listens" in again.stderr, again.stderr
    for text, says in (("[rig a]\nrig = recording:mps-sokets-r4-h200-20261129-a\n", "bad.conf:2: rig: unknown recording 'mps-sokets"),
                       ("[rig a]\nrig = nccll\n", "bad.conf:2: rig: unknown rig 'nccll'; did you mean 'nccl'"),
                       ("[queue]\nwindow = 22-6\n", "bad.conf:2: window: '22-6' is no time window"),
                       ("[watch]\nrig = nod\n[rig node]\n", "bad.conf:2: [watch]: unknown rig 'nod'; did you mean 'node'")):
        with Daemon(NCCLTUNE) as d:
            (d.dir / "bad.conf").write_text(text)
            r = subprocess.run([NCCLTUNE, "serve", "--db", "a.db", "--config", "bad.conf", "--listen", "unix:s"], cwd=d.dir, env=d.environment(),
                               capture_output=True, text=True, timeout=20)
            assert r.returncode == 2 and says in r.stderr and not d.db.exists(), (text, r.returncode, r.stderr)
    for words, says in ((["--listen", "127.0.0.1:0"], "TCP is only for who has a token"),
                        (["--listen", "0.0.0.0:0", "--tokens", "tokens"], "reachable from other machines"),
                        (["--listen", "nowhere"], "no place to listen"),
                        (["--listen", ""], "listen names no place, so nobody could reach the service"), (["--config", "/none"], "/none"),
                        (["--listen", "127.0.0.1:0", "--tokens", "open"], "others can read it")):
        with Daemon(NCCLTUNE) as d:
            (d.dir / "tokens").write_text(TOKENS)
            (d.dir / "tokens").chmod(0o600)
            (d.dir / "open").write_text(TOKENS)
            r = subprocess.run([NCCLTUNE, "serve", "--db", "a.db", *words], cwd=d.dir, env=d.environment(), capture_output=True, text=True, timeout=20)
            assert r.returncode == 2 and says in r.stderr, (words, r.returncode, r.stderr)


def raw(d, data, wait=1.0):
    """What comes back for bytes as they are; b'' when the connection is closed at once."""
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(wait)
    s.connect(str(d.sock))
    s.sendall(data)
    got = b""
    try:
        while True:
            more = s.recv(65536)
            if not more:
                break
            got += more
    except (TimeoutError, ConnectionError):
        pass
    s.close()
    return got


def part_attacks():
    config = RIG.replace("[rig", "[server]\nmax_connections = 1100\n[rig", 1)
    with make(config).start() as d:
        head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert raw(d, head * 20).count(b"HTTP/1.1 200") == 20  # pipelined
        assert b" 200 " not in raw(d, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 40000 + b"\r\n\r\n")
        assert b"200 OK" not in raw(d, b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\n\r\n")
        for early, status in ((b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20000 + b"\r\n\r\n", 431),
                              (b"GET /healthz HTTP/1.1\r\n\r\n", 400), (b"BREW /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
                              (b"GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n", 404)):
            got_head, _, body = raw(d, early, 0.5).partition(b"\r\n\r\n")
            assert f" {status} ".encode() in got_head and b"application/json" in got_head and json.loads(body)["error"]["message"], got_head
        for junk in (b"\0" * 1000, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00", os.urandom(4000),
                     b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
                     b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
                     b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\nzz\r\n",
                     b"GET /v1/jobs?limit=%00 HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            assert b"HTTP/1.1 2" not in raw(d, junk, 0.3), junk[:40]
        large = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2000000\r\n\r\n"
        assert b" 413 " in raw(d, large)
        chunk = b"%x\r\n" % 60000 + b" " * 60000 + b"\r\n"
        chunked = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert b" 413 " in raw(d, chunked + chunk * 20 + b"0\r\n\r\n")
        try:
            assert b"HTTP/1.1 2" not in raw(d, chunked + chunk * 200)  # cut off before its end
        except (BrokenPipeError, ConnectionResetError):
            pass
        half(d)
        idle(d)
        drops(d)
        assert d.get("/healthz")["status"] == "ok"
        assert d.stop() == 0


def half(d):
    """A client that shuts its side down still gets its answer."""
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(5)
    s.connect(str(d.sock))
    s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    s.shutdown(socket.SHUT_WR)
    got = s.recv(65536)
    assert got == b"" or b"200 OK" in got
    s.close()


def idle(d):
    """A thousand idle connections are no hindrance, and little memory."""
    many = []
    for _ in range(1000):
        s = socket.socket(socket.AF_UNIX)
        s.connect(str(d.sock))
        many.append(s)
    d.get("/healthz")  # by now all were taken in
    assert d.get("/healthz")["status"] == "ok"
    kib = int(next(l for l in open(f"/proc/{d.process.pid}/status") if l.startswith("VmRSS")).split()[1])
    assert kib < (400000 if SANITIZED else 40000), kib
    for s in many:
        s.close()


def drops(d):
    """A request fed drop by drop ends at its time, however steadily the drops come."""
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(1)
    s.connect(str(d.sock))
    s.sendall(b"GET /healthz HTTP/1.1\r\n")
    began, open_ = time.monotonic(), True
    while open_ and time.monotonic() - began < 20:
        try:
            s.sendall(b"X-A: b\r\n")
            time.sleep(0.25)
            s.settimeout(0.01)
            open_ = s.recv(1000) != b""
        except TimeoutError:
            pass
        except OSError:
            open_ = False
    took = time.monotonic() - began
    assert not open_ and took > 9, took
    s.close()


def follow(d, path="/v1/events?after=0"):
    c = Unix(d.sock, timeout=20)
    c.request("GET", path)
    r = c.getresponse()
    assert r.status == 200 and r.getheader("Content-Type") == "text/event-stream"
    return r


def read_events(r, until):
    """Events until one fulfils the condition."""
    events, event = [], {}
    while True:
        line = r.readline().decode().rstrip("\n")
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif event:
            if "data" in event:
                event["data"] = json.loads(event["data"])
                events.append(event)
                if until(event):
                    return events
            event = {}


def part_events():
    with make().start() as d:
        r = follow(d)
        job = d.post("/v1/jobs", {"rig": "replay"}, 201)["id"]
        events = read_events(r, lambda e: e["event"] == "job" and e["data"].get("state") == "done")
        states = [e["data"]["state"] for e in events if e["event"] == "job"]
        assert states == ["queued", "running", "done"], states
        assert any(e["event"] == "progress" and e["data"]["stage"] == "race" for e in events)
        ids = [int(e["id"]) for e in events]
        assert ids == sorted(set(ids))
        # Who was told by a service whose clock was ahead is not left waiting for that time to come.
        ahead = follow(d, f"/v1/events?after={ids[-1] + 86400000}&job={job}")
        assert read_events(ahead, lambda e: e["event"] == "job")[-1]["data"]["state"] == "queued"
        again = follow(d, f"/v1/events?after={ids[1]}&job={job}")
        assert int(read_events(again, lambda e: True)[0]["id"]) == next(int(e["id"]) for e in events[2:] if e["data"].get("job") == job)
        streams = [follow(d) for _ in range(50)]
        d.post("/v1/jobs", {"rig": "replay", "seed": 2}, 201)
        for s in streams:
            read_events(s, lambda e: e["event"] == "job" and e["data"].get("state") == "done" and e["data"]["job"] == 2)
        assert d.stop() == 0  # with streams open


def part_jobs():
    with make(RIG.replace("effort", "pace = real\neffort")).start() as d:
        first = d.post("/v1/jobs", {"rig": "replay"}, 201)["id"]
        d.wait(first, "running")
        low = d.post("/v1/jobs", {"rig": "replay", "priority": -1}, 201)["id"]
        high = d.post("/v1/jobs", {"rig": "replay"}, 201)["id"]
        assert d.get(f"/v1/jobs/{low}")["reason"] == "waits for its turn"
        assert d.ask("PATCH", f"/v1/jobs/{high}", {"priority": 9})[1]["priority"] == 9
        d.until(lambda: len(d.others()) >= 5)  # tune and its four ranks
        assert d.post(f"/v1/jobs/{first}/cancel", want=202)["state"] in ("cancelling", "cancelled")
        assert d.wait(first)["state"] == "cancelled"
        d.wait(high, "running")
        assert d.get(f"/v1/jobs/{low}")["state"] == "queued"
        assert d.post(f"/v1/jobs/{low}/cancel", want=202)["state"] == "cancelled"
        assert d.post(f"/v1/jobs/{high}/cancel", want=202)["state"] == "cancelling"
        d.wait(high)
        assert d.others() == [], [open(f"/proc/{p}/cmdline").read() for p in d.others()]  # the whole gang is gone
        assert d.post(f"/v1/jobs/{low}/resume", want=202)["state"] in ("queued", "running")
        d.wait(low, "running")
        d.until(lambda: d.others())
        tune = d.get(f"/v1/jobs/{low}")
        pid = sqlite3.connect(d.db).execute("SELECT owner_pid FROM queue WHERE id = ?", (low,)).fetchone()[0]
        os.kill(pid, signal.SIGKILL)  # crashed: goes on where it was, after a while
        back = d.wait(low, "queued")
        assert back["attempts"] == tune["attempts"] and "tried again" in back["reason"], back
        assert d.stop() == 0 and d.others() == []


def part_kill():
    """The service is killed at any moment, and started anew: nothing lost, nothing done twice."""
    rng = random.Random(5)
    with make().start() as d:
        ids = [d.post("/v1/jobs", {"rig": "replay", "seed": n}, 201)["id"] for n in range(6)]
        kills = 0
        while kills < 12:
            time.sleep(rng.uniform(0, 0.5))
            d.kill()
            kills += 1
            d.start()
            if kills == 6:
                ids.append(d.post("/v1/jobs", {"rig": "replay", "seed": 50}, 201)["id"])
        for i in ids:
            j = d.wait(i, timeout=120)
            assert j["state"] == "done", (j, d.said())
        assert d.others() == []
        db = sqlite3.connect(d.db)
        assert db.execute("SELECT count(*), count(DISTINCT key) FROM job").fetchone() == (len(ids), len(ids))
        assert db.execute("SELECT count(*) FROM job WHERE state <> 'done'").fetchone()[0] == 0
        seeds = sorted(r[0] for r in db.execute("SELECT seed FROM job"))
        assert seeds == [0, 1, 2, 3, 4, 5, 50], seeds
        assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        print(f"kill: {kills} kills, {len(ids)} jobs, each done once")
        assert d.stop() == 0


def part_transitions():
    """Killed between writing a state down and acting on it: the states as they were then."""
    with make() as d:
        d.start()
        one = d.post("/v1/jobs", {"rig": "replay"}, 201)["id"]
        d.wait(one)
        d.stop()
        db = sqlite3.connect(d.db, isolation_level=None)
        # state, owner (a living process that is not ours to talk to, a dead one, none), what becomes of it
        sleeper = subprocess.Popen(["sleep", "1000"])
        start = pathlib.Path(f"/proc/{sleeper.pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        cases = (("running", (None, None, None), "done"), ("running", (sleeper.pid, boot, int(start)), "done"),
                 ("running", (sleeper.pid, boot, 1), "done"), ("cancelling", (None, None, None), "cancelled"),
                 ("running", (sleeper.pid, "another boot", int(start)), "done"), ("queued", (None, None, None), "done"))
        for n, (state, owner, _) in enumerate(cases):
            db.execute("INSERT INTO queue (key, kind, rig, ask, priority, state, reason, cause, asked_by, attempts, not_before_ms, created_ms,"
                       " owner_pid, owner_boot, owner_start) VALUES (?, 'tune', 'replay', '{}', 0, ?, '', '', 'test', 1, 0, 1, ?, ?, ?)",
                       ("%032x" % n, state, *owner))
        d.start()
        for n, (state, owner, becomes) in enumerate(cases):
            j = d.wait(one + 1 + n)
            assert j["state"] == becomes, (n, state, owner, j)
        assert sleeper.wait(timeout=10) == -signal.SIGTERM  # the one that was recorded, and no other
        assert d.stop() == 0


def moved(d):
    """The database is moved away, removed or replaced under the service: said, nothing begun anew, and over when it is back."""
    away = d.dir / "away.db"
    for other in (None, b"", away):
        os.rename(d.db, away)
        if other is not None:
            d.db.write_bytes(other if isinstance(other, bytes) else other.read_bytes())
        assert d.ask("GET", "/healthz") == (503, {"status": "failing", "version": d.ask("GET", "/healthz")[1]["version"],
                                                  "why": "the database was moved or removed"})
        status, answer = d.ask("POST", "/v1/jobs", {"rig": "replay", "seed": 5})
        assert status == 503 and "was moved, removed or replaced" in answer["error"]["message"], answer
        assert d.ask("POST", "/v1/query", {"sql": "SELECT 1"})[0] == 503  # not an answer from another file
        assert other is not None or not d.db.exists()
        os.rename(away, d.db)
        assert d.get("/healthz")["status"] == "ok"
    job = d.post("/v1/jobs", {"rig": "replay", "seed": 5}, 201)["id"]
    assert d.wait(job)["state"] == "done"


def unreached(d):
    """The socket is removed under the service, or a file lies at its name: said, and there again as soon as it can be."""
    def status():
        try:
            return d.ask("GET", "/healthz")[0]
        except OSError:
            return None
    stream = Unix(d.sock)
    stream.request("GET", "/healthz")
    assert stream.getresponse().read()
    mode = d.sock.stat().st_mode
    d.sock.unlink()
    d.until(lambda: status() == 200, timeout=60)
    assert d.sock.stat().st_mode == mode and f"socket {d.sock} was removed or replaced: listening there anew" in d.said()
    stream.request("GET", "/healthz")  # who was connected still is
    assert stream.getresponse().status == 200
    stream.close()
    d.sock.unlink()
    d.sock.write_text("somebody's")
    d.until(lambda: "nobody reaches the service there" in d.said(), timeout=60)
    assert d.sock.read_text() == "somebody's"
    d.sock.unlink()
    d.until(lambda: status() == 200, timeout=60)


def part_faults():
    """A database that cannot be written, or a disk that is full: the right errors, and it goes on."""
    with make() as d:
        d.start()
        job = d.post("/v1/jobs", {"rig": "replay"}, 201)["id"]
        d.wait(job)
        d.stop()
        kib = 1024  # the log of a database grows to four MiB before it is used again: its writes fail as on a full disk
        d.start(prefix=("bash", "-c", f'ulimit -f {kib}; exec "$@"', "-"))
        told = None
        for n in range(400):
            status, answer = d.ask("POST", "/v1/jobs", {"rig": "replay", "seed": n + 10, "priority": -5})
            if status == 503:
                told = answer["error"]
                break
            d.ask("POST", f"/v1/jobs/{answer['id']}/cancel") if status == 201 else None
        assert told and told["code"] == "database", (told, d.said()[-2000:])
        assert d.ask("GET", "/healthz")[0] == 503
        assert d.get("/v1/profiles/1")["format"] == "nccltune-profile"  # what can be answered is
        assert d.stop() == 0
        assert sqlite3.connect(d.db).execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        d.start()  # there is room again
        assert d.get("/healthz")["status"] == "ok"
        job = d.post("/v1/jobs", {"rig": "replay", "seed": 9}, 201)["id"]
        assert d.wait(job)["state"] == "done"
        moved(d)
        unreached(d)
        second = subprocess.run([NCCLTUNE, "serve", "--config", d.dir / "c.conf", "--listen", f"unix:{d.dir}/other"], env=d.environment(),
                                capture_output=True, text=True, timeout=20)
        assert second.returncode == 3 and "another service works on" in second.stderr, (second.returncode, second.stderr)
        assert d.get("/healthz")["status"] == "ok"
        d.stop()
        if os.getuid() != 0:  # root writes to what it may not
            os.chmod(d.db, 0o444)
            r = subprocess.run([NCCLTUNE, "serve", "--config", d.dir / "c.conf"], env=d.environment(), capture_output=True, text=True, timeout=20)
            assert r.returncode == 1 and "cannot be written" in r.stderr, r.stderr
            os.chmod(d.db, 0o644)
        d.db.write_bytes(b"no database at all" * 100)
        r = subprocess.run([NCCLTUNE, "serve", "--config", d.dir / "c.conf"], env=d.environment(), capture_output=True, text=True, timeout=20)
        assert r.returncode == 2 and ("not an nccltune database" in r.stderr or "is damaged" in r.stderr), r.stderr


BOX = ("[watch]\ntopology = @/topo.xml\ninterval = {interval}\nsettle = {settle}\non_change = {change}\non_stale = {stale}\nrig = box\n"
       "[rig box]\nrig = model:@/topo.xml\ngpus = none\neffort = quick\nsizes = 64K,128K\ncollectives = all_reduce\nmodes = eager\n")


def topology(d, name):
    shutil.copy(SOURCE / f"tests/topology/data/{name}.xml", d.dir / "new.xml")
    os.rename(d.dir / "new.xml", d.dir / "topo.xml")


def part_change():
    """Another machine: event, job, new profile, the old one retired; and back again."""
    d = make(BOX.format(interval="100ms", settle="300ms", change="queue", stale="withhold"), recording=False)
    with d:
        topology(d, "pairs4")
        d.start()
        first = d.until(lambda: d.get("/v1/profiles")["profiles"])[0]
        assert first["state"] == "current" and d.wait(1)["by"] == "watch"
        topology(d, "pcie4")
        d.until(lambda: d.get("/v1/profiles?before=2")["profiles"][0]["state"] == "withheld")
        assert d.ask("GET", "/v1/profiles/1")[0] == 409
        second = d.until(lambda: [p for p in d.get("/v1/profiles")["profiles"] if p["id"] == 2])[0]
        assert second["identity"] != first["identity"] and second["state"] == "current"
        old = d.until(lambda: [p for p in d.get("/v1/profiles")["profiles"] if p["id"] == 1 and p["state"] == "retired"])[0]
        assert old["why"] == "watch: replaced by profile 2", old
        log = [(e["kind"], e["data"].get("what") or e["data"].get("state")) for e in d.get("/v1/log?limit=1000")["events"] if "data" in e]
        for want in (("machine", "different"), ("machine", "settled"), ("job", "queued"), ("profile", "current"), ("profile", "retired")):
            assert want in log, (want, log)
        topology(d, "pairs4")  # what it was: its profile holds again, no job
        d.until(lambda: d.get("/v1/profiles?before=2")["profiles"][0]["state"] == "current")
        assert [p["state"] for p in d.get("/v1/profiles")["profiles"]] == ["withheld", "current"]
        assert len(d.get("/v1/jobs")["jobs"]) == 2
        (d.dir / "topo.xml").write_text("nothing")
        d.until(lambda: d.get("/v1/machine")["state"] == "unreadable")
        assert d.get("/v1/profiles/1")["format"]
        assert d.stop() == 0
    d = make(BOX.format(interval="100ms", settle="200ms", change="propose", stale="warn"), recording=False)
    with d:
        topology(d, "pairs4")
        d.start()
        job = d.until(lambda: d.get("/v1/jobs?state=proposed")["jobs"])[0]
        assert job["by"] == "watch" and job["reason"] == "seen for the first time"
        topology(d, "pcie4")
        d.until(lambda: d.get(f"/v1/jobs/{job['id']}")["state"] == "cancelled")  # for a machine that is no more
        other = d.until(lambda: d.get("/v1/jobs?state=proposed")["jobs"])[0]
        assert d.post(f"/v1/jobs/{other['id']}/resume", want=202)["state"] in ("queued", "running")
        assert d.wait(other["id"])["state"] == "done"
        assert d.stop() == 0


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_kib(pid):
    return int(next(l for l in open(f"/proc/{pid}/status") if l.startswith("VmRSS")).split()[1])


def part_day():
    """A day of looks every five minutes, one each 30 ms, at a machine that comes and goes; the service killed now and then."""
    rng, looks, seconds = random.Random(3), 288, 14
    d = make(BOX.format(interval="30ms", settle="150ms", change="queue", stale="warn"), recording=False)
    with d:
        names, flips, kills = ["pairs4", "pcie4", "template4"], 0, 0
        topology(d, names[0])
        d.start()
        d.until(lambda: d.get("/v1/profiles")["profiles"])
        files = open_files(d.process.pid)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            topology(d, rng.choice(names))
            flips += 1
            time.sleep(rng.choice([0.02, 0.05, 0.1, 0.3, 0.6]))
            if rng.random() < 0.06:
                d.kill()
                kills += 1
                d.start()
        topology(d, names[0])
        d.until(lambda: d.get("/v1/machine")["state"] == "settled" and d.get("/v1/server")["waiting"] == 0 and
                d.get("/v1/server")["running"] == 0, timeout=60)
        time.sleep(0.5)
        db = sqlite3.connect(d.db)
        seen = db.execute("SELECT count(*) FROM event WHERE kind = 'machine'").fetchone()[0]
        living = db.execute("SELECT cause, count(*) FROM queue WHERE state IN ('proposed', 'queued', 'running') GROUP BY cause").fetchall()
        assert living == [], living
        twice = db.execute("SELECT key, count(*) FROM job GROUP BY key HAVING count(*) > 1").fetchall()
        assert twice == []
        lost = db.execute("SELECT count(*) FROM queue AS q WHERE q.state = 'done' AND NOT EXISTS"
                          " (SELECT 1 FROM job AS j JOIN profile AS p ON p.job_id = j.id WHERE j.key = q.key)").fetchone()[0]
        assert lost == 0
        failed = db.execute("SELECT id, reason FROM queue WHERE state = 'failed'").fetchall()
        assert all(any(w in r for w in ("alike", "other content", "differ", "go on where it began")) for _, r in failed), failed  # the machine changed under them
        # One current profile of the machine as it is, no more.
        here = d.get("/v1/machine")["identity"]
        current = [p for p in d.get("/v1/profiles")["profiles"] if p["identity"] == here and p["state"] == "current"]
        assert len(current) == 1, (here, d.get("/v1/profiles"))
        d.until(lambda: abs(open_files(d.process.pid) - files) <= 3)
        assert len(d.others()) <= 1  # a look may be under way
        jobs = db.execute("SELECT state, count(*) FROM queue GROUP BY state").fetchall()
        print(f"day: {flips} flips, {kills} kills, {seen} events of the machine, jobs {dict(jobs)}, {resident_kib(d.process.pid)} KiB, {looks} looks and more")
        assert d.stop() == 0


def part_load():
    """GPU jobs wait for idle GPUs, and give way to others."""
    rig = RIG.replace("gpus = none", "gpus = 0,1").replace("effort", "pace = real\neffort")
    config = "[queue]\nidle_for = 200ms\nload_interval = 50ms\n[watch]\nload = @/load\ntopology = @/topo.xml\non_change = off\n" + rig
    d = make(config)
    with d:
        topology(d, "pairs4")
        (d.dir / "load").write_text("0 90\n1 0\n")
        d.start()
        job = d.post("/v1/jobs", {"rig": "replay"}, 201)["id"]
        d.until(lambda: "busy" in d.get(f"/v1/jobs/{job}").get("reason", ""))
        time.sleep(0.4)
        assert d.get(f"/v1/jobs/{job}")["state"] == "queued"
        (d.dir / "load").write_text("0 0\n1 0\n")
        d.wait(job, "running")
        (d.dir / "load").write_text("0 100\n1 100\n")  # that is us
        time.sleep(0.3)
        assert d.get(f"/v1/jobs/{job}")["state"] == "running"
        (d.dir / "load").write_text("0 100\n1 100 foreign\n")
        paused = d.wait(job, "queued")
        assert "busy" in paused["reason"] or "paused" in paused["reason"], paused
        d.until(lambda: len(d.others()) <= 1)
        (d.dir / "load").write_text("0 0\n1 0\n")
        d.wait(job, "running")
        assert d.get(f"/v1/jobs/{job}")["run"] == 1
        d.post(f"/v1/jobs/{job}/cancel", want=202)
        d.wait(job)
        assert d.stop() == 0


    # A job that comes right after a look, when the next by itself is five minutes away.
    with make("[queue]\nidle_for = 100ms\nload_interval = 1s\n[watch]\nload = @/load\ntopology = @/topo.xml\non_change = off\n" + rig) as d:
        topology(d, "pairs4")
        (d.dir / "load").write_text("0 90\n1 90\n")
        d.start()
        d.until(lambda: d.get("/v1/machine")["state"] == "settled")
        (d.dir / "load").write_text("0 0\n1 0\n")
        job = d.post("/v1/jobs", {"rig": "replay"}, 201)["id"]
        d.wait(job, "running", timeout=20)
        assert d.stop() == 0


def part_check():
    with make(RIG + "check = 1s\n" + RIG.replace("replay", "other")).start() as d:
        job = d.post("/v1/jobs", {"rig": "replay"}, 201)["id"]
        assert d.wait(job)["state"] == "done"
        check = d.until(lambda: [j for j in d.get("/v1/jobs")["jobs"] if j["kind"] == "check"], timeout=20)[0]
        assert check["by"] == "schedule"
        assert d.wait(check["id"])["state"] == "done"
        assert d.get("/v1/profiles/1/checks")["checks"] == []  # an empty profile: nothing to check
        assert any(e["kind"] == "check" for e in d.get("/v1/log")["events"])
        for body, want, says in (({"rig": "replay", "kind": "check", "profile": 77}, 400, "profile: there is none"),
                                 ({"rig": "other", "kind": "check"}, 409, "no current profile")):
            status, answer = d.ask("POST", "/v1/jobs", body)
            assert status == want and says in answer["error"]["message"], (body, status, answer)
        asked = d.post("/v1/jobs", {"rig": "replay", "kind": "check", "profile": 1}, 201)
        assert d.wait(asked["id"])["state"] == "done"
        assert d.stop() == 0


def part_site():
    """A profile made under other site constraints takes nobody's place; under the same, it does."""
    with make().start() as d:
        text = gzip.decompress((d.dir / "r.csv.gz").read_bytes()).decode()
        assert "#fixed=" not in text
        head, _, rest = text.partition("\n")
        (d.dir / "fixed.csv.gz").write_bytes(gzip.compress(f"{head}\n#fixed=NCCL_NVLS_ENABLE=0\n{rest}".encode()))

        def tune(seed, name):
            r = subprocess.run([NCCLTUNE, "tune", "--rig", f"recording:{d.dir}/{name}.csv.gz", "--effort", "quick", "-q", "--db", str(d.db), "--seed", seed],
                               cwd=d.dir, env=d.environment(), capture_output=True, text=True, timeout=60)
            assert r.returncode == 0, r.stderr

        def states():
            return {p["id"]: (p["state"], p.get("site", "")) for p in d.get("/v1/profiles")["profiles"]}
        d.wait(d.post("/v1/jobs", {"rig": "replay"}, 201)["id"])
        tune("2", "fixed")
        d.until(lambda: any(e["data"].get("profile") == 2 for e in d.get("/v1/log")["events"] if e["kind"] == "profile"))
        assert states() == {1: ("current", ""), 2: ("current", "NCCL_NVLS_ENABLE=0")}, states()
        tune("3", "r")
        d.until(lambda: states().get(1, "")[0] == "retired")
        assert states() == {1: ("retired", ""), 2: ("current", "NCCL_NVLS_ENABLE=0"), 3: ("current", "")}, states()
        assert d.stop() == 0


def part_burst():
    """Many ask for the same at once, before it is in memory, and while it changes."""
    import threading
    with make().start() as d:
        d.wait(d.post("/v1/jobs", {"rig": "replay"}, 201)["id"])
        paths = ["/v1/profiles/1", "/v1/profiles", "/v1/profiles/1/table?allow_rig=mps-sockets", "/v1/profiles/match?identity=x"]
        wrong = []

        def fetch(n):
            c = Unix(d.sock)
            for i in range(40):
                c.request("GET", paths[(n + i) % len(paths)], headers={"If-None-Match": '"x"'} if i % 3 else {})
                r = c.getresponse()
                if len(r.read()) == 0 or r.status not in (200, 503):
                    wrong.append(r.status)
            c.close()
        threads = [threading.Thread(target=fetch, args=(n,)) for n in range(40)]
        for t in threads:
            t.start()
        for n in range(30):  # each change makes everything in memory old
            assert d.ask("PATCH", "/v1/profiles/1", {"state": ["retired", "current"][n % 2], "why": str(n)}, raw=True)[0] == 200
        for t in threads:
            t.join()
        assert wrong == [], wrong[:5]
        assert d.stop() == 0


if __name__ == "__main__":
    globals()["part_" + sys.argv[1]]()

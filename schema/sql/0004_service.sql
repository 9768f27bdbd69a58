-- What the service keeps: its queue, what it saw last, and which profiles no longer hold.

-- One thing that was asked for. key is that of the tuning run (job.key), chosen here, so that a run
-- started twice is one run. ask: JSON, what a client may name. cause: '' when a person asked, else
-- what the watcher wants done, once. The owner is the child process, as in job.
CREATE TABLE queue (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE CHECK (length(key) = 32),
    kind TEXT NOT NULL CHECK (kind IN ('tune', 'check')),
    rig TEXT NOT NULL,
    ask TEXT NOT NULL,
    priority INTEGER NOT NULL CHECK (priority BETWEEN -100 AND 100),
    state TEXT NOT NULL CHECK (state IN ('proposed', 'queued', 'running', 'cancelling', 'done',
                                         'failed', 'cancelled')),
    reason TEXT NOT NULL,
    cause TEXT NOT NULL,
    asked_by TEXT NOT NULL,
    attempts INTEGER NOT NULL CHECK (attempts >= 0),
    not_before_ms INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    started_ms INTEGER,
    finished_ms INTEGER,
    owner_pid INTEGER,
    owner_boot TEXT,
    owner_start INTEGER
) STRICT;
CREATE UNIQUE INDEX queue_cause ON queue (cause)
    WHERE cause <> '' AND state IN ('proposed', 'queued', 'running', 'cancelling');
CREATE INDEX queue_state ON queue (state);

-- What was seen last under a name: JSON.
CREATE TABLE snapshot (
    name TEXT PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    json TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- A profile without a row here is current. retired: another took its place; stale: what it was made
-- for changed; withheld: stale, and not handed out.
CREATE TABLE profile_state (
    profile_id INTEGER PRIMARY KEY REFERENCES profile,
    state TEXT NOT NULL CHECK (state IN ('stale', 'withheld', 'retired')),
    why TEXT NOT NULL,
    at_ms INTEGER NOT NULL
) STRICT;

CREATE VIEW queued AS
SELECT q.id AS entry, q.kind, q.rig, q.state, q.reason, q.priority, q.asked_by, q.cause, q.attempts,
       datetime(q.created_ms / 1000, 'unixepoch') AS created,
       datetime(q.started_ms / 1000, 'unixepoch') AS started,
       datetime(q.finished_ms / 1000, 'unixepoch') AS finished, j.id AS job
FROM queue AS q
LEFT JOIN job AS j ON j.key = q.key;

CREATE VIEW profiles AS
SELECT p.id AS profile, p.job_id AS job, coalesce(s.state, 'current') AS state, s.why, j.rig, j.ranks,
       j.nodes, j.placement, t.identity, k.gpu, k.nccl, k.driver,
       datetime(p.created_ms / 1000, 'unixepoch') AS created
FROM profile AS p
JOIN job AS j ON j.id = p.job_id
LEFT JOIN profile_state AS s ON s.profile_id = p.id
LEFT JOIN topology AS t ON t.id = j.topology_id
LEFT JOIN stack AS k ON k.id = j.stack_id;

-- Raw samples of old jobs are thinned: a few order statistics stay (n of them), the columns of the
-- summary are of all that there were. thinned: how many; NULL: all are here.
ALTER TABLE trial ADD COLUMN thinned INTEGER CHECK (thinned > n);

-- What `nccltune check` found: a profile held against its machine again. key is the same in every database that
-- holds the check. profile: SHA-256 of the delivery file that was checked. differs: what of machine and stack
-- was not as when the profile was made, one thing a line. copy_ns, launch_ns: the control, beside the rows.
CREATE TABLE checkrun (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE CHECK (length(key) = 32),
    at_ms INTEGER NOT NULL,
    profile TEXT NOT NULL CHECK (length(profile) = 64),
    product TEXT NOT NULL,
    rig TEXT NOT NULL,
    ranks INTEGER NOT NULL CHECK (ranks > 0),
    nodes INTEGER NOT NULL CHECK (nodes > 0),
    topology_id INTEGER REFERENCES topology,
    host_id INTEGER REFERENCES host,
    stack_id INTEGER REFERENCES stack,
    pairs INTEGER NOT NULL CHECK (pairs >= 0),
    verdict TEXT NOT NULL,
    differs TEXT NOT NULL,
    copy_bytes INTEGER NOT NULL CHECK (copy_bytes >= 0),
    copy_ns REAL,
    launch_ns REAL
) STRICT;
CREATE INDEX checkrun_profile ON checkrun (profile, at_ms);

-- One row of the profile in one mode. Ratios are default over tuned: above 1 tuned is faster. *_move: against
-- the profile's times.
CREATE TABLE checkrow (
    check_id INTEGER NOT NULL REFERENCES checkrun,
    nr INTEGER NOT NULL,
    case_id INTEGER NOT NULL REFERENCES cases,
    setting_id INTEGER NOT NULL REFERENCES setting,
    min_bytes INTEGER NOT NULL CHECK (min_bytes >= 0),
    max_bytes INTEGER NOT NULL CHECK (max_bytes >= min_bytes),
    was_ratio REAL,
    ratio REAL,
    lo REAL,
    hi REAL,
    default_ns REAL,
    tuned_ns REAL,
    default_move TEXT NOT NULL,
    tuned_move TEXT NOT NULL,
    verdict TEXT NOT NULL,
    why TEXT NOT NULL,
    PRIMARY KEY (check_id, nr),
    CHECK (lo <= hi)
) STRICT, WITHOUT ROWID;

CREATE VIEW checks AS
SELECT r.id AS "check", datetime(r.at_ms / 1000, 'unixepoch') AS at, substr(r.profile, 1, 12) AS profile, r.rig,
       r.ranks, c.collective, c.bytes, c.mode, s.label AS setting,
       round(100 * (1 - 1.0 / w.was_ratio), 2) AS was_gain_pct, round(100 * (1 - 1.0 / w.ratio), 2) AS gain_pct,
       round(100 * (1 - 1.0 / w.lo), 2) AS lo_pct, round(100 * (1 - 1.0 / w.hi), 2) AS hi_pct,
       round(w.default_ns / 1000, 2) AS default_us, round(w.tuned_ns / 1000, 2) AS tuned_us, w.default_move,
       w.tuned_move, w.verdict, w.why, round(r.copy_bytes / r.copy_ns, 2) AS copy_gbps,
       round(r.launch_ns / 1000, 2) AS launch_us, r.differs, t.identity, t.health, k.nccl, k.nccl_sha256, k.driver,
       k.cuda, k.gpu, k.site, h.name AS host, r.profile AS profile_sha256
FROM checkrun AS r
JOIN checkrow AS w ON w.check_id = r.id
JOIN cases AS c ON c.id = w.case_id
JOIN setting AS s ON s.id = w.setting_id
LEFT JOIN topology AS t ON t.id = r.topology_id
LEFT JOIN stack AS k ON k.id = r.stack_id
LEFT JOIN host AS h ON h.id = r.host_id
ORDER BY r.at_ms, r.id, w.nr;

-- The tables. docs/database.md describes them for readers.
--
-- Files of this folder are applied in order of their numbers and never changed once released: a change
-- is a new file. Each runs inside one transaction together with the raise of user_version.
--
-- Names in columns: *_ns nanoseconds, *_ms milliseconds since 1970 (UTC), *_bytes bytes. Words of the
-- vocabulary (collectives, modes …) are kept as text, so that numbers in a program may change and
-- people can read the tables. NULL: not measured.

-- What was measured on. Each content once, found again by its hash.
CREATE TABLE topology (
    id INTEGER PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE CHECK (length(hash) = 64),
    identity TEXT NOT NULL,
    mask TEXT NOT NULL,
    json TEXT NOT NULL,
    xml TEXT NOT NULL,
    health TEXT NOT NULL
) STRICT;

CREATE TABLE host (
    id INTEGER PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE CHECK (length(hash) = 64),
    name TEXT NOT NULL,
    facts TEXT NOT NULL
) STRICT;

CREATE TABLE stack (
    id INTEGER PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE CHECK (length(hash) = 64),
    nccl TEXT NOT NULL,
    nccl_sha256 TEXT NOT NULL,
    cuda TEXT NOT NULL,
    driver TEXT NOT NULL,
    framework TEXT NOT NULL,
    gpu TEXT NOT NULL,
    site TEXT NOT NULL
) STRICT;

-- One assignment of values: variables of the processes and what the tuner asks for in a call.
-- algo '' and channels 0: left to NCCL. label: for people, 'default' when nothing is set.
CREATE TABLE setting (
    id INTEGER PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE CHECK (length(hash) = 64),
    vars TEXT NOT NULL,
    algo TEXT NOT NULL,
    proto TEXT NOT NULL,
    channels INTEGER NOT NULL CHECK (channels BETWEEN 0 AND 65535),
    chunk_bytes INTEGER NOT NULL CHECK (chunk_bytes >= 0),
    label TEXT NOT NULL,
    CHECK ((algo = '') = (proto = ''))
) STRICT;

-- What NCCL really ran.
CREATE TABLE executed (
    id INTEGER PRIMARY KEY,
    algo TEXT NOT NULL,
    proto TEXT NOT NULL,
    channels INTEGER NOT NULL CHECK (channels BETWEEN 0 AND 65535),
    warps INTEGER NOT NULL CHECK (warps BETWEEN 0 AND 65535),
    label TEXT NOT NULL,
    UNIQUE (algo, proto, channels, warps)
) STRICT;

CREATE TABLE cases (
    id INTEGER PRIMARY KEY,
    collective TEXT NOT NULL,
    bytes INTEGER NOT NULL CHECK (bytes >= 0),
    dtype TEXT NOT NULL,
    place TEXT NOT NULL,
    mode TEXT NOT NULL,
    UNIQUE (collective, bytes, dtype, place, mode)
) STRICT;

-- One tuning run. key is the same in every database that holds the job. seed: 64 bits, read as
-- signed. The owner is the living process that drives the job: its pid, the boot of the machine, and
-- the process's start in clock ticks, since pids come round.
CREATE TABLE job (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE CHECK (length(key) = 32),
    spec TEXT NOT NULL,
    seed INTEGER NOT NULL,
    rig TEXT NOT NULL,
    ranks INTEGER NOT NULL CHECK (ranks > 0),
    nodes INTEGER NOT NULL CHECK (nodes > 0),
    placement TEXT NOT NULL,
    topology_id INTEGER REFERENCES topology,
    host_id INTEGER REFERENCES host,
    stack_id INTEGER REFERENCES stack,
    state TEXT NOT NULL CHECK (state IN ('new', 'running', 'interrupted', 'done', 'failed')),
    stage TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    finished_ms INTEGER,
    device_ns INTEGER NOT NULL CHECK (device_ns >= 0),
    owner_pid INTEGER,
    owner_boot TEXT,
    owner_start INTEGER
) STRICT;

-- The outcomes of a job in their order; each is a row of exactly one of gang, cells, trial.
CREATE TABLE step (
    job_id INTEGER NOT NULL REFERENCES job,
    seq INTEGER NOT NULL CHECK (seq > 0),
    kind INTEGER NOT NULL CHECK (kind BETWEEN 1 AND 3), -- 1 gang, 2 cells, 3 trial
    PRIMARY KEY (job_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE gang (
    job_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    number INTEGER NOT NULL CHECK (number >= 0),
    arm TEXT NOT NULL,
    setting_id INTEGER NOT NULL REFERENCES setting,
    start_ns INTEGER NOT NULL CHECK (start_ns >= 0),
    init_ns INTEGER NOT NULL CHECK (init_ns >= 0),
    status TEXT NOT NULL,
    memory_bytes INTEGER NOT NULL CHECK (memory_bytes >= 0),
    error TEXT NOT NULL,
    PRIMARY KEY (job_id, seq),
    UNIQUE (job_id, number),
    FOREIGN KEY (job_id, seq) REFERENCES step
) STRICT;

-- What is available for a case and NCCL's own estimate of it. cost: little-endian 32-bit floats in µs,
-- row by algorithm, column by protocol, in NCCL's numbering; negative: unavailable.
CREATE TABLE cells (
    job_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    gang INTEGER NOT NULL,
    case_id INTEGER NOT NULL REFERENCES cases,
    asked INTEGER NOT NULL CHECK (asked IN (0, 1)),
    status TEXT NOT NULL,
    error TEXT NOT NULL,
    cost BLOB NOT NULL CHECK (length(cost) % 12 = 0),
    PRIMARY KEY (job_id, seq),
    FOREIGN KEY (job_id, seq) REFERENCES step,
    FOREIGN KEY (job_id, gang) REFERENCES gang (job_id, number)
) STRICT;

-- One setting in one case, measured once by one gang. samples: one little-endian unsigned 32-bit number
-- of nanoseconds per iteration, of the slowest rank; the columns before it are their summary.
CREATE TABLE trial (
    job_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    gang INTEGER NOT NULL,
    case_id INTEGER NOT NULL REFERENCES cases,
    setting_id INTEGER NOT NULL REFERENCES setting,
    executed_id INTEGER REFERENCES executed, -- NULL: not read
    status TEXT NOT NULL,
    n INTEGER NOT NULL CHECK (n >= 0),
    median_ns REAL,
    mean_ns REAL,
    min_ns INTEGER,
    p95_ns INTEGER,
    sd_ns REAL,
    base_ns INTEGER NOT NULL CHECK (base_ns >= 0),
    elapsed_ns INTEGER NOT NULL CHECK (elapsed_ns >= 0),
    connect_ns INTEGER NOT NULL CHECK (connect_ns >= 0),
    memory_bytes INTEGER NOT NULL CHECK (memory_bytes >= 0),
    wrong INTEGER NOT NULL CHECK (wrong >= 0),
    flags INTEGER NOT NULL CHECK (flags >= 0),
    error TEXT NOT NULL,
    samples BLOB NOT NULL CHECK (length(samples) = 4 * n),
    PRIMARY KEY (job_id, seq),
    FOREIGN KEY (job_id, seq) REFERENCES step,
    FOREIGN KEY (job_id, gang) REFERENCES gang (job_id, number),
    CHECK ((n = 0) = (median_ns IS NULL))
) STRICT;

-- The summaries answer most questions; this index holds all of them that the views need, so that they
-- never read the samples.
CREATE INDEX trial_summary ON trial (job_id, case_id, setting_id, median_ns, gang, seq)
    WHERE median_ns IS NOT NULL;
CREATE INDEX trial_failed ON trial (job_id, status, case_id, setting_id) WHERE status <> 'ok';

-- What was found for a setting in a case. speedup: time of the default over time of the setting.
CREATE TABLE verdict (
    id INTEGER PRIMARY KEY,
    job_id INTEGER NOT NULL REFERENCES job,
    stage TEXT NOT NULL,
    product TEXT NOT NULL,
    case_id INTEGER NOT NULL REFERENCES cases,
    setting_id INTEGER NOT NULL REFERENCES setting,
    kind TEXT NOT NULL CHECK (kind IN ('winner', 'tie', 'no winner', 'rejected', 'not checked')),
    default_ns REAL,
    tuned_ns REAL,
    speedup REAL,
    lo REAL,
    hi REAL,
    p REAL CHECK (p BETWEEN 0 AND 1),
    pairs INTEGER NOT NULL CHECK (pairs >= 0),
    reason TEXT NOT NULL,
    UNIQUE (job_id, stage, product, case_id, setting_id),
    CHECK (lo <= hi)
) STRICT;

CREATE TABLE profile (
    id INTEGER PRIMARY KEY,
    job_id INTEGER NOT NULL REFERENCES job,
    hash TEXT NOT NULL CHECK (length(hash) = 64), -- of json
    created_ms INTEGER NOT NULL,
    json TEXT NOT NULL,
    UNIQUE (job_id, hash)
) STRICT;

CREATE TABLE profile_row (
    profile_id INTEGER NOT NULL REFERENCES profile,
    product TEXT NOT NULL,
    case_id INTEGER NOT NULL REFERENCES cases,
    min_bytes INTEGER NOT NULL CHECK (min_bytes >= 0),
    max_bytes INTEGER NOT NULL CHECK (max_bytes >= min_bytes),
    setting_id INTEGER NOT NULL REFERENCES setting,
    kind TEXT NOT NULL CHECK (kind IN ('winner', 'tie', 'no winner', 'rejected', 'not checked')),
    default_ns REAL,
    as_found_ns REAL,
    tuned_ns REAL,
    speedup REAL,
    lo REAL,
    hi REAL,
    p REAL CHECK (p BETWEEN 0 AND 1),
    pairs INTEGER NOT NULL CHECK (pairs >= 0),
    PRIMARY KEY (profile_id, product, case_id),
    CHECK (lo <= hi)
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
    id INTEGER PRIMARY KEY,
    job_id INTEGER REFERENCES job,
    at_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL
) STRICT;
CREATE INDEX event_job ON event (job_id, at_ms);

-- Other people's measurements, as their files say them.
CREATE TABLE import (
    id INTEGER PRIMARY KEY,
    sha256 TEXT NOT NULL CHECK (length(sha256) = 64),
    kind TEXT NOT NULL,
    source TEXT NOT NULL,
    provenance TEXT NOT NULL,
    setup TEXT NOT NULL, -- equal text: figures may be compared; '': only within the file
    at_ms INTEGER NOT NULL,
    UNIQUE (sha256, kind)
) STRICT;

CREATE TABLE measurement (
    id INTEGER PRIMARY KEY,
    import_id INTEGER NOT NULL REFERENCES import,
    collective TEXT NOT NULL,
    bytes INTEGER NOT NULL CHECK (bytes >= 0),
    dtype TEXT NOT NULL,
    place TEXT NOT NULL,
    mode TEXT NOT NULL,
    backend TEXT NOT NULL,
    setting TEXT NOT NULL,
    ranks INTEGER NOT NULL CHECK (ranks >= 0), -- 0: unknown
    repeat INTEGER NOT NULL CHECK (repeat >= 0),
    samples INTEGER NOT NULL CHECK (samples >= 0),
    ns REAL,
    sd_ns REAL,
    algbw_gbps REAL,
    busbw_gbps REAL,
    wrong INTEGER CHECK (wrong >= 0) -- NULL: not checked
) STRICT;
CREATE INDEX measurement_import ON measurement (import_id);

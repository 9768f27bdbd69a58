-- The views that people and `nccltune query --view` read. Times are µs (*_us); gains are percent.
-- Each is described in tuner/store/names.c, which `query --help` prints.

-- Every tuning run.
CREATE VIEW jobs AS
SELECT j.id AS job, j.state, j.stage, j.rig, j.ranks, j.nodes, j.placement,
       datetime(j.created_ms / 1000, 'unixepoch') AS created,
       datetime(j.finished_ms / 1000, 'unixepoch') AS finished,
       round(j.device_ns / 1e9, 1) AS device_s,
       (SELECT count(*) FROM step AS s WHERE s.job_id = j.id AND s.kind = 3) AS trials,
       t.identity, k.gpu, k.nccl, k.driver, h.name AS host, j.key
FROM job AS j
LEFT JOIN topology AS t ON t.id = j.topology_id
LEFT JOIN stack AS k ON k.id = j.stack_id
LEFT JOIN host AS h ON h.id = j.host_id;

-- What the newest profile of each job gains, class by class, with the 95 % interval.
CREATE VIEW speedups AS
SELECT p.job_id AS job, r.product, c.collective, r.min_bytes, r.max_bytes, c.bytes, c.mode, c.dtype,
       c.place, s.label AS setting, round(r.default_ns / 1000, 2) AS default_us,
       round(r.as_found_ns / 1000, 2) AS as_found_us, round(r.tuned_ns / 1000, 2) AS tuned_us,
       round(100 * (r.speedup - 1), 2) AS gain_pct, round(100 * (r.lo - 1), 2) AS lo_pct,
       round(100 * (r.hi - 1), 2) AS hi_pct, r.p, r.pairs, r.kind AS verdict, j.rig
FROM profile AS p
JOIN job AS j ON j.id = p.job_id
JOIN profile_row AS r ON r.profile_id = p.id
JOIN cases AS c ON c.id = r.case_id
JOIN setting AS s ON s.id = r.setting_id
WHERE p.id = (SELECT q.id FROM profile AS q WHERE q.job_id = p.job_id
              ORDER BY q.created_ms DESC, q.id DESC LIMIT 1);

-- Everything measured by jobs, in order.
CREATE VIEW trials AS
SELECT t.job_id AS job, t.seq, t.gang, g.arm, c.collective, c.bytes, c.dtype, c.place, c.mode,
       s.label AS setting, x.label AS executed, t.status, t.n, round(t.median_ns / 1000, 2) AS median_us,
       round(t.mean_ns / 1000, 2) AS mean_us, round(t.min_ns / 1000.0, 2) AS min_us,
       round(t.p95_ns / 1000.0, 2) AS p95_us, round(t.sd_ns / 1000, 2) AS sd_us,
       t.base_ns, t.elapsed_ns, t.connect_ns, t.memory_bytes, t.wrong, t.flags, t.error
FROM trial AS t
JOIN gang AS g ON g.job_id = t.job_id AND g.number = t.gang
JOIN cases AS c ON c.id = t.case_id
JOIN setting AS s ON s.id = t.setting_id
LEFT JOIN executed AS x ON x.id = t.executed_id;

-- What was found for each setting at each stage.
CREATE VIEW verdicts AS
SELECT v.job_id AS job, v.stage, v.product, c.collective, c.bytes, c.dtype, c.place, c.mode,
       s.label AS setting, v.kind AS verdict, round(v.default_ns / 1000, 2) AS default_us,
       round(v.tuned_ns / 1000, 2) AS tuned_us, round(100 * (v.speedup - 1), 2) AS gain_pct,
       round(100 * (v.lo - 1), 2) AS lo_pct, round(100 * (v.hi - 1), 2) AS hi_pct, v.p, v.pairs,
       v.reason
FROM verdict AS v
JOIN cases AS c ON c.id = v.case_id
JOIN setting AS s ON s.id = v.setting_id;

-- What is in no profile, and why: verdicts, and settings that failed while measured.
CREATE VIEW rejected AS
SELECT v.job_id AS job, v.stage, c.collective, c.bytes, c.dtype, c.place, c.mode, s.label AS setting,
       'rejected' AS why, 1 AS times, v.reason
FROM verdict AS v
JOIN cases AS c ON c.id = v.case_id
JOIN setting AS s ON s.id = v.setting_id
WHERE v.kind = 'rejected'
UNION ALL
SELECT t.job_id, 'measured', c.collective, c.bytes, c.dtype, c.place, c.mode, s.label, t.status,
       count(*), max(t.error)
FROM trial AS t
JOIN cases AS c ON c.id = t.case_id
JOIN setting AS s ON s.id = t.setting_id
WHERE t.status <> 'ok'
GROUP BY t.job_id, t.status, t.case_id, t.setting_id;

-- The default against itself: how far gangs and blocks of one gang lie apart (standard deviation in
-- percent of the mean).
CREATE VIEW noise AS
SELECT g.job_id AS job, c.collective, c.bytes, c.dtype, c.place, c.mode, count(*) AS gangs,
       sum(g.blocks) AS blocks, round(avg(g.mean) / 1000, 2) AS mean_us,
       round(100 * sqrt(max(0, avg(g.mean * g.mean) - avg(g.mean) * avg(g.mean))) / avg(g.mean), 2)
           AS between_gangs_pct,
       round(100 * sqrt(avg(g.variance)) / avg(g.mean), 2) AS within_gang_pct
FROM (SELECT t.job_id, t.case_id, t.gang, count(*) AS blocks, avg(t.median_ns) AS mean,
             max(0, avg(t.median_ns * t.median_ns) - avg(t.median_ns) * avg(t.median_ns)) AS variance
      FROM trial AS t
      WHERE t.setting_id = (SELECT id FROM setting WHERE vars = '' AND algo = '' AND channels = 0
                                           AND chunk_bytes = 0) AND t.median_ns IS NOT NULL
      GROUP BY t.job_id, t.case_id, t.gang) AS g
JOIN cases AS c ON c.id = g.case_id
GROUP BY g.job_id, g.case_id;

-- Later blocks against earlier ones of the same setting and case: repeats that disagree in order are
-- drift, not noise. At least 8 blocks.
CREATE VIEW drift AS
SELECT o.job_id AS job, c.collective, c.bytes, c.dtype, c.place, c.mode, s.label AS setting,
       max(o.blocks) AS blocks,
       round(avg(CASE WHEN 2 * o.nth <= o.blocks THEN o.median_ns END) / 1000, 2) AS first_us,
       round(avg(CASE WHEN 2 * o.nth > o.blocks THEN o.median_ns END) / 1000, 2) AS last_us,
       round(100 * (avg(CASE WHEN 2 * o.nth > o.blocks THEN o.median_ns END)
                    / avg(CASE WHEN 2 * o.nth <= o.blocks THEN o.median_ns END) - 1), 2) AS drift_pct
FROM (SELECT t.job_id, t.case_id, t.setting_id, t.median_ns,
             row_number() OVER (PARTITION BY t.job_id, t.case_id, t.setting_id ORDER BY t.seq) AS nth,
             count(*) OVER (PARTITION BY t.job_id, t.case_id, t.setting_id) AS blocks
      FROM trial AS t
      WHERE t.median_ns IS NOT NULL) AS o
JOIN cases AS c ON c.id = o.case_id
JOIN setting AS s ON s.id = o.setting_id
WHERE o.blocks >= 8
GROUP BY o.job_id, o.case_id, o.setting_id;

-- Other people's measurements.
CREATE VIEW measurements AS
SELECT i.id AS import, i.source, i.kind, m.collective, m.bytes, m.dtype, m.place, m.mode, m.backend,
       m.setting, m.ranks, m.repeat, m.samples, round(m.ns / 1000, 2) AS time_us,
       round(m.sd_ns / 1000, 2) AS sd_us, m.algbw_gbps, m.busbw_gbps, m.wrong, i.setup
FROM measurement AS m
JOIN import AS i ON i.id = m.import_id;

CREATE VIEW imports AS
SELECT i.id AS import, i.source, i.kind, datetime(i.at_ms / 1000, 'unixepoch') AS imported,
       (SELECT count(*) FROM measurement AS m WHERE m.import_id = i.id) AS measurements, i.setup,
       i.provenance, i.sha256
FROM import AS i;

CREATE VIEW events AS
SELECT e.id AS event, e.job_id AS job, datetime(e.at_ms / 1000, 'unixepoch') AS at, e.kind, e.text
FROM event AS e;

-- One line for each contender in each case: the median and the quartiles of its values, from jobs
-- (blocks) and imports (repeats). Figures are compared within one job, or within imports of one setup.
-- Wrong data never competes. Where a file gives bandwidth only, time is taken as bytes / bandwidth.
CREATE VIEW contenders AS
SELECT source, collective, bytes, dtype, place, mode, ranks, contender, max(k) AS n,
       max(CASE WHEN i = (k + 1) / 2 THEN ns END) AS median_ns,
       max(CASE WHEN i = (k + 3) / 4 THEN ns END) AS q1_ns,
       max(CASE WHEN i = (3 * k + 3) / 4 THEN ns END) AS q3_ns, max(sd_ns) AS sd_ns
FROM (SELECT 'import ' || i.id AS source, m.collective, m.bytes, m.dtype, m.place, m.mode, m.ranks,
             m.backend || CASE WHEN m.backend = '' OR m.setting = '' THEN '' ELSE ' ' END
                 || m.setting AS contender, m.ns, m.sd_ns,
             row_number() OVER contender AS i,
             count(*) OVER (PARTITION BY i.id, m.collective, m.bytes, m.dtype, m.place, m.mode, m.ranks,
                                         m.backend, m.setting) AS k
      FROM (SELECT min(id) OVER (PARTITION BY CASE setup WHEN '' THEN 'import ' || id ELSE setup END)
                       AS id, id AS own FROM import) AS i
      JOIN (SELECT import_id, collective, bytes, dtype, place, mode, ranks, backend, setting, sd_ns,
                   coalesce(ns, bytes / algbw_gbps, bytes / busbw_gbps) AS ns
            FROM measurement WHERE coalesce(wrong, 0) = 0) AS m ON m.import_id = i.own
      WHERE m.ns IS NOT NULL
      WINDOW contender AS (PARTITION BY i.id, m.collective, m.bytes, m.dtype, m.place, m.mode, m.ranks,
                                        m.backend, m.setting ORDER BY m.ns))
GROUP BY source, collective, bytes, dtype, place, mode, ranks, contender
UNION ALL
SELECT 'job ' || t.job_id, c.collective, c.bytes, c.dtype, c.place, c.mode, j.ranks, s.label, max(t.k),
       max(CASE WHEN t.i = (t.k + 1) / 2 THEN t.median_ns END),
       max(CASE WHEN t.i = (t.k + 3) / 4 THEN t.median_ns END),
       max(CASE WHEN t.i = (3 * t.k + 3) / 4 THEN t.median_ns END), NULL
FROM (SELECT job_id, case_id, setting_id, median_ns,
             row_number() OVER (PARTITION BY job_id, case_id, setting_id ORDER BY median_ns) AS i,
             count(*) OVER (PARTITION BY job_id, case_id, setting_id) AS k
      FROM trial WHERE median_ns IS NOT NULL) AS t
JOIN job AS j ON j.id = t.job_id
JOIN cases AS c ON c.id = t.case_id
JOIN setting AS s ON s.id = t.setting_id
GROUP BY t.job_id, t.case_id, t.setting_id;

-- The fastest and the second in each case, by plain medians: a look, not a proof (that is `speedups`).
-- Verdict: a tie below 2 %; too noisy where the quartiles of the two overlap, or the standard
-- deviations reach over the distance; not credible below the time of one kernel launch.
CREATE VIEW best AS
SELECT source, collective, bytes, dtype, place, mode, ranks, contender AS best,
       round(median_ns / 1000, 2) AS best_us, second, round(second_ns / 1000, 2) AS second_us,
       round(100 * (second_ns / median_ns - 1), 1) AS margin_pct,
       CASE WHEN median_ns < 1000 THEN 'gain not credible: outlier'
            WHEN second IS NULL THEN 'only one'
            WHEN second_ns < 1.02 * median_ns THEN 'tie'
            WHEN q3_ns >= second_q1_ns
                 OR second_ns - median_ns < coalesce(sd_ns, 0) + coalesce(second_sd_ns, 0)
                THEN 'no winner: too noisy'
            ELSE 'winner' END AS verdict
FROM (SELECT *, row_number() OVER faster AS rank, lead(contender) OVER faster AS second,
             lead(median_ns) OVER faster AS second_ns, lead(q1_ns) OVER faster AS second_q1_ns,
             lead(sd_ns) OVER faster AS second_sd_ns
      FROM contenders
      WINDOW faster AS (PARTITION BY source, collective, bytes, dtype, place, mode, ranks
                        ORDER BY median_ns, contender))
WHERE rank = 1;

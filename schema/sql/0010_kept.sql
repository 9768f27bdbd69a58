-- A class of an untuned collective that a row keeps as it is without the product's variables: kind 'tie', verdict `kept`.
DROP VIEW speedups;
CREATE VIEW speedups AS
SELECT p.job_id AS job, r.product, c.collective, r.min_bytes, r.max_bytes, c.bytes, c.mode, c.dtype,
       c.place, s.label AS setting, round(r.default_ns / 1000, 2) AS default_us,
       round(r.as_found_ns / 1000, 2) AS as_found_us, round(r.tuned_ns / 1000, 2) AS tuned_us,
       round(100 * (1 - 1.0 / r.speedup), 2) AS gain_pct, round(100 * (1 - 1.0 / r.lo), 2) AS lo_pct,
       round(100 * (1 - 1.0 / r.hi), 2) AS hi_pct, round(r.p, 5) AS p, r.pairs,
       CASE r.kind WHEN 'winner' THEN 'tuned' WHEN 'no winner' THEN 'undecided'
                   WHEN 'rejected' THEN 'guard' WHEN 'tie' THEN 'kept' ELSE r.kind END AS verdict, j.rig
FROM profile AS p
JOIN job AS j ON j.id = p.job_id
JOIN profile_row AS r ON r.profile_id = p.id
JOIN cases AS c ON c.id = r.case_id
JOIN setting AS s ON s.id = r.setting_id
WHERE p.id = (SELECT q.id FROM profile AS q WHERE q.job_id = p.job_id
              ORDER BY q.created_ms DESC, q.id DESC LIMIT 1)
ORDER BY job, r.product DESC, c.collective, c.bytes, c.mode;

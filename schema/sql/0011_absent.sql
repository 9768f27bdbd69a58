-- What a replayed gang lacks sits out that gang: no setting that failed.
DROP VIEW rejected;
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
WHERE t.status NOT IN ('ok', 'not_recorded')
GROUP BY t.job_id, t.status, t.case_id, t.setting_id;

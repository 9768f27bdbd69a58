-- contenders, best: of imports of one setup the first that holds the case is named; it was the first of
-- them, which may hold another data type alone.
DROP VIEW contenders;
CREATE VIEW contenders AS
SELECT 'import ' || least AS source, collective, bytes, dtype, place, mode, ranks, contender, max(k) AS n,
       max(CASE WHEN i = (k + 1) / 2 THEN ns END) AS median_ns,
       max(CASE WHEN i = (k + 3) / 4 THEN ns END) AS q1_ns,
       max(CASE WHEN i = (3 * k + 3) / 4 THEN ns END) AS q3_ns, max(sd_ns) AS sd_ns
FROM (SELECT min(m.import_id) OVER (PARTITION BY i.id, m.collective, m.bytes, m.dtype, m.place, m.mode, m.ranks)
                 AS least, i.id AS setup, m.collective, m.bytes, m.dtype, m.place, m.mode, m.ranks,
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
GROUP BY setup, least, collective, bytes, dtype, place, mode, ranks, contender
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

-- noise: what one gang alone cannot tell, how gangs differ, is not known; it was 0.
DROP VIEW noise;
CREATE VIEW noise AS
WITH recorded AS (
    SELECT import, setup, collective, bytes, dtype, place, mode, setting, count(*) AS gangs,
           avg(CASE WHEN nth IN ((gangs + 1) / 2, (gangs + 2) / 2) THEN ns END) AS middle,
           CASE WHEN count(*) > 1 THEN sqrt(max(0, avg(ns * ns) - avg(ns) * avg(ns))) / avg(ns) END AS between_gangs,
           avg(sd_ns / ns) AS within_gang
    FROM (SELECT i.id AS import, i.setup, m.collective, m.bytes, m.dtype, m.place, m.mode, m.setting, m.ns,
                 m.sd_ns, row_number() OVER (tuple ORDER BY m.ns) AS nth, count(*) OVER tuple AS gangs
          FROM import AS i JOIN measurement AS m ON m.import_id = i.id
          WHERE i.kind = 'recording' AND i.setup <> ''
          WINDOW tuple AS (PARTITION BY i.id, m.collective, m.bytes, m.dtype, m.place, m.mode, m.setting))
    GROUP BY import, collective, bytes, dtype, place, mode, setting),
pair AS (
    SELECT a.import AS a, b.import AS b, a.collective, a.bytes, a.dtype, a.place, a.mode,
           a.gangs + b.gangs AS gangs, a.middle AS a_mid, b.middle AS b_mid,
           min(a.middle) OVER both AS a_best, min(b.middle) OVER both AS b_best,
           (coalesce(a.between_gangs, b.between_gangs) + coalesce(b.between_gangs, a.between_gangs)) / 2 AS between_gangs,
           (a.within_gang + b.within_gang) / 2 AS within_gang
    FROM recorded AS a
    JOIN recorded AS b ON b.setup = a.setup AND b.import > a.import AND b.collective = a.collective
         AND b.bytes = a.bytes AND b.dtype = a.dtype AND b.place = a.place AND b.mode = a.mode
         AND b.setting = a.setting
    WINDOW both AS (PARTITION BY a.import, b.import, a.collective, a.bytes, a.dtype, a.place, a.mode))
SELECT g.job_id AS job, c.collective, c.bytes, c.dtype, c.place, c.mode, count(*) AS gangs,
       sum(g.blocks) AS blocks, round(avg(g.mean) / 1000, 2) AS mean_us,
       CASE WHEN count(*) > 1
            THEN round(100 * sqrt(max(0, avg(g.mean * g.mean) - avg(g.mean) * avg(g.mean))) / avg(g.mean), 2) END
           AS between_gangs_pct,
       round(100 * sqrt(avg(g.variance)) / avg(g.mean), 2) AS within_gang_pct,
       NULL AS recordings, NULL AS tuples, NULL AS between_recordings_pct, NULL AS best_apart_pct
FROM (SELECT t.job_id, t.case_id, t.gang, count(*) AS blocks, avg(t.median_ns) AS mean,
             max(0, avg(t.median_ns * t.median_ns) - avg(t.median_ns) * avg(t.median_ns)) AS variance
      FROM trial AS t JOIN gang AS a ON a.job_id = t.job_id AND a.number = t.gang
      WHERE a.arm IN ('search', 'default', 'backends') AND t.flags & 6 = 0 AND t.median_ns IS NOT NULL
            AND t.setting_id = (SELECT id FROM setting WHERE vars = '' AND algo = '' AND channels = 0
                                AND chunk_bytes = 0 AND backend = 'nccl')
      GROUP BY t.job_id, t.case_id, t.gang) AS g
JOIN cases AS c ON c.id = g.case_id
GROUP BY g.job_id, g.case_id
UNION ALL
SELECT NULL, collective, bytes, dtype, place, mode, max(gangs), NULL,
       round((min(a_best) + min(b_best)) / 2000, 2), round(100 * avg(between_gangs), 2),
       round(100 * avg(within_gang), 2), 'import ' || a || ', import ' || b, count(*),
       round(100 * avg(max(a_mid, b_mid) / min(a_mid, b_mid) - 1), 2),
       round(100 * (max(max(CASE WHEN a_mid = a_best THEN b_mid / b_best END),
                        max(CASE WHEN b_mid = b_best THEN a_mid / a_best END)) - 1), 2)
FROM pair
WHERE a_mid <= 1.25 * a_best OR b_mid <= 1.25 * b_best
GROUP BY a, b, collective, bytes, dtype, place, mode;

-- Adds to `main` what the attached database `src` holds and main does not. Rows are found again by
-- their content (hashes, words), jobs by their key, imports by the hash of the file; ids differ.
-- Runs inside one transaction; the m_* tables are dropped at its end by the caller.

INSERT INTO main.topology (hash, identity, mask, json, xml, health)
SELECT hash, identity, mask, json, xml, health FROM src.topology WHERE true ON CONFLICT (hash) DO NOTHING;
INSERT INTO main.host (hash, name, facts)
SELECT hash, name, facts FROM src.host WHERE true ON CONFLICT (hash) DO NOTHING;
INSERT INTO main.stack (hash, nccl, nccl_sha256, cuda, driver, framework, gpu, site)
SELECT hash, nccl, nccl_sha256, cuda, driver, framework, gpu, site FROM src.stack
WHERE true ON CONFLICT (hash) DO NOTHING;
INSERT INTO main.setting (hash, vars, algo, proto, channels, chunk_bytes, label, backend)
SELECT hash, vars, algo, proto, channels, chunk_bytes, label, backend FROM src.setting
WHERE true ON CONFLICT (hash) DO NOTHING;
INSERT INTO main.executed (algo, proto, channels, warps, label)
SELECT algo, proto, channels, warps, label FROM src.executed
WHERE true ON CONFLICT (algo, proto, channels, warps) DO NOTHING;
INSERT INTO main.cases (collective, bytes, dtype, place, mode)
SELECT collective, bytes, dtype, place, mode FROM src.cases
WHERE true ON CONFLICT (collective, bytes, dtype, place, mode) DO NOTHING;

-- Ids there → ids here.
CREATE TEMP TABLE m_topology (old INTEGER PRIMARY KEY, new INTEGER NOT NULL);
INSERT INTO m_topology SELECT s.id, m.id FROM src.topology AS s JOIN main.topology AS m USING (hash);
CREATE TEMP TABLE m_host (old INTEGER PRIMARY KEY, new INTEGER NOT NULL);
INSERT INTO m_host SELECT s.id, m.id FROM src.host AS s JOIN main.host AS m USING (hash);
CREATE TEMP TABLE m_stack (old INTEGER PRIMARY KEY, new INTEGER NOT NULL);
INSERT INTO m_stack SELECT s.id, m.id FROM src.stack AS s JOIN main.stack AS m USING (hash);
CREATE TEMP TABLE m_setting (old INTEGER PRIMARY KEY, new INTEGER NOT NULL);
INSERT INTO m_setting SELECT s.id, m.id FROM src.setting AS s JOIN main.setting AS m USING (hash);
CREATE TEMP TABLE m_executed (old INTEGER PRIMARY KEY, new INTEGER NOT NULL);
INSERT INTO m_executed SELECT s.id, m.id
FROM src.executed AS s JOIN main.executed AS m USING (algo, proto, channels, warps);
CREATE TEMP TABLE m_cases (old INTEGER PRIMARY KEY, new INTEGER NOT NULL);
INSERT INTO m_cases SELECT s.id, m.id
FROM src.cases AS s JOIN main.cases AS m USING (collective, bytes, dtype, place, mode);

-- A job that both hold and that went on differently in each (a copied database, resumed twice).
CREATE TEMP TABLE m_conflict (old INTEGER PRIMARY KEY);
INSERT INTO m_conflict
SELECT s.id FROM src.job AS s JOIN main.job AS m USING (key)
WHERE EXISTS (SELECT 1 FROM src.step AS a JOIN main.step AS b ON b.job_id = m.id AND b.seq = a.seq
              WHERE a.job_id = s.id AND a.kind <> b.kind)
   OR EXISTS (SELECT 1 FROM src.gang AS a JOIN main.gang AS b ON b.job_id = m.id AND b.seq = a.seq
              WHERE a.job_id = s.id AND (a.number, a.start_ns, a.init_ns) <> (b.number, b.start_ns, b.init_ns))
   OR EXISTS (SELECT 1 FROM src.trial AS a JOIN main.trial AS b ON b.job_id = m.id AND b.seq = a.seq
              WHERE a.job_id = s.id
                AND ((a.status, a.elapsed_ns) <> (b.status, b.elapsed_ns)
                     OR (a.thinned IS NULL AND b.thinned IS NULL AND a.samples <> b.samples)));

-- A job that a living process drives here (m_alive, by the caller): its steps are that one's to write.
CREATE TEMP TABLE m_driven (old INTEGER PRIMARY KEY);
INSERT INTO m_driven
SELECT s.id FROM src.job AS s JOIN main.job AS m USING (key)
WHERE m.id IN (SELECT id FROM m_alive) AND s.id NOT IN (SELECT old FROM m_conflict)
  AND ((SELECT coalesce(max(seq), 0) FROM src.step WHERE job_id = s.id)
           > (SELECT coalesce(max(seq), 0) FROM main.step WHERE job_id = m.id)
       OR s.finished_ms IS NOT NULL);

-- A job that went further there. Its owner stays behind: nobody drives a merged job.
UPDATE main.job AS m
SET state = CASE s.state WHEN 'running' THEN 'interrupted' ELSE s.state END, stage = s.stage,
    finished_ms = s.finished_ms, device_ns = s.device_ns,
    topology_id = coalesce(m.topology_id, (SELECT new FROM m_topology WHERE old = s.topology_id)),
    host_id = coalesce(m.host_id, (SELECT new FROM m_host WHERE old = s.host_id)),
    stack_id = coalesce(m.stack_id, (SELECT new FROM m_stack WHERE old = s.stack_id))
FROM src.job AS s
WHERE s.key = m.key AND s.id NOT IN (SELECT old FROM m_conflict UNION SELECT old FROM m_driven)
  AND ((SELECT coalesce(max(seq), 0) FROM src.step WHERE job_id = s.id)
           > (SELECT coalesce(max(seq), 0) FROM main.step WHERE job_id = m.id)
       OR (s.finished_ms IS NOT NULL AND m.finished_ms IS NULL));
INSERT INTO main.job (key, spec, seed, rig, ranks, nodes, placement, topology_id, host_id, stack_id,
                      state, stage, created_ms, finished_ms, device_ns)
SELECT key, spec, seed, rig, ranks, nodes, placement,
       (SELECT new FROM m_topology WHERE old = topology_id), (SELECT new FROM m_host WHERE old = host_id),
       (SELECT new FROM m_stack WHERE old = stack_id),
       CASE state WHEN 'running' THEN 'interrupted' ELSE state END, stage, created_ms, finished_ms,
       device_ns
FROM src.job WHERE key NOT IN (SELECT key FROM main.job) ORDER BY id;
CREATE TEMP TABLE m_job (old INTEGER PRIMARY KEY, new INTEGER NOT NULL);
INSERT INTO m_job SELECT s.id, m.id FROM src.job AS s JOIN main.job AS m USING (key)
WHERE s.id NOT IN (SELECT old FROM m_conflict UNION SELECT old FROM m_driven);

INSERT INTO main.step (job_id, seq, kind)
SELECT j.new, s.seq, s.kind FROM src.step AS s JOIN m_job AS j ON j.old = s.job_id
WHERE true ON CONFLICT (job_id, seq) DO NOTHING;
INSERT INTO main.gang (job_id, seq, number, arm, setting_id, start_ns, init_ns, status, memory_bytes, error)
SELECT j.new, g.seq, g.number, g.arm, x.new, g.start_ns, g.init_ns, g.status, g.memory_bytes, g.error
FROM src.gang AS g JOIN m_job AS j ON j.old = g.job_id JOIN m_setting AS x ON x.old = g.setting_id
WHERE true ON CONFLICT (job_id, seq) DO NOTHING;
INSERT INTO main.cells (job_id, seq, gang, case_id, asked, status, error, cost)
SELECT j.new, c.seq, c.gang, k.new, c.asked, c.status, c.error, c.cost
FROM src.cells AS c JOIN m_job AS j ON j.old = c.job_id JOIN m_cases AS k ON k.old = c.case_id
WHERE true ON CONFLICT (job_id, seq) DO NOTHING;
INSERT INTO main.trial (job_id, seq, gang, case_id, setting_id, executed_id, status, n, median_ns, mean_ns,
                        min_ns, p95_ns, sd_ns, base_ns, elapsed_ns, connect_ns, memory_bytes, wrong, flags,
                        error, samples, thinned, bits, own_chunk_bytes)
SELECT j.new, t.seq, t.gang, k.new, x.new, (SELECT new FROM m_executed WHERE old = t.executed_id),
       t.status, t.n, t.median_ns, t.mean_ns, t.min_ns, t.p95_ns, t.sd_ns, t.base_ns, t.elapsed_ns,
       t.connect_ns, t.memory_bytes, t.wrong, t.flags, t.error, t.samples, t.thinned, t.bits, t.own_chunk_bytes
FROM src.trial AS t JOIN m_job AS j ON j.old = t.job_id JOIN m_cases AS k ON k.old = t.case_id
JOIN m_setting AS x ON x.old = t.setting_id
WHERE true ON CONFLICT (job_id, seq) DO NOTHING;

INSERT INTO main.verdict (job_id, stage, product, case_id, setting_id, kind, default_ns, tuned_ns, speedup,
                          lo, hi, p, pairs, reason)
SELECT j.new, v.stage, v.product, k.new, x.new, v.kind, v.default_ns, v.tuned_ns, v.speedup, v.lo, v.hi,
       v.p, v.pairs, v.reason
FROM src.verdict AS v JOIN m_job AS j ON j.old = v.job_id JOIN m_cases AS k ON k.old = v.case_id
JOIN m_setting AS x ON x.old = v.setting_id
WHERE true ON CONFLICT (job_id, stage, product, case_id, setting_id) DO NOTHING;

CREATE TEMP TABLE m_before (id INTEGER NOT NULL);
INSERT INTO m_before SELECT coalesce(max(id), 0) FROM main.profile;
INSERT INTO main.profile (job_id, hash, created_ms, json)
SELECT j.new, p.hash, p.created_ms, p.json FROM src.profile AS p JOIN m_job AS j ON j.old = p.job_id
WHERE true ORDER BY p.id ON CONFLICT (job_id, hash) DO NOTHING;
INSERT INTO main.profile_row (profile_id, product, case_id, min_bytes, max_bytes, setting_id, kind,
                              default_ns, as_found_ns, tuned_ns, speedup, lo, hi, p, pairs)
SELECT m.id, r.product, k.new, r.min_bytes, r.max_bytes, x.new, r.kind, r.default_ns, r.as_found_ns,
       r.tuned_ns, r.speedup, r.lo, r.hi, r.p, r.pairs
FROM src.profile_row AS r JOIN src.profile AS p ON p.id = r.profile_id
JOIN m_job AS j ON j.old = p.job_id JOIN main.profile AS m ON m.job_id = j.new AND m.hash = p.hash
JOIN m_cases AS k ON k.old = r.case_id JOIN m_setting AS x ON x.old = r.setting_id
WHERE true ON CONFLICT (profile_id, product, case_id) DO NOTHING;
-- What no longer holds there does not hold here: said of profiles that come now, and where it was said
-- later there than here. A profile that is current here stays so. The queue stays behind with its owner.
INSERT INTO main.profile_state (profile_id, state, why, at_ms)
SELECT m.id, s.state, s.why, s.at_ms
FROM src.profile_state AS s JOIN src.profile AS p ON p.id = s.profile_id
JOIN m_job AS j ON j.old = p.job_id JOIN main.profile AS m ON m.job_id = j.new AND m.hash = p.hash
WHERE m.id > (SELECT id FROM m_before) OR m.id IN (SELECT profile_id FROM main.profile_state)
ON CONFLICT (profile_id) DO UPDATE SET state = excluded.state, why = excluded.why, at_ms = excluded.at_ms
WHERE excluded.at_ms > at_ms;

INSERT INTO main.event (job_id, at_ms, kind, text)
SELECT j.new, e.at_ms, e.kind, e.text FROM src.event AS e LEFT JOIN m_job AS j ON j.old = e.job_id
WHERE (e.job_id IS NULL OR j.new IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM main.event AS m WHERE m.job_id IS j.new AND m.at_ms = e.at_ms
                                                  AND m.kind = e.kind AND m.text = e.text)
ORDER BY e.id;

CREATE TEMP TABLE m_import (old INTEGER PRIMARY KEY);
INSERT INTO m_import SELECT s.id FROM src.import AS s
WHERE NOT EXISTS (SELECT 1 FROM main.import AS m WHERE m.sha256 = s.sha256 AND m.kind = s.kind);
INSERT INTO main.import (sha256, kind, source, provenance, setup, at_ms)
SELECT sha256, kind, source, provenance, setup, at_ms FROM src.import
WHERE id IN (SELECT old FROM m_import) ORDER BY id;
INSERT INTO main.measurement (import_id, collective, bytes, dtype, place, mode, backend, setting, ranks,
                              repeat, samples, ns, sd_ns, algbw_gbps, busbw_gbps, wrong)
SELECT m.id, x.collective, x.bytes, x.dtype, x.place, x.mode, x.backend, x.setting, x.ranks, x.repeat,
       x.samples, x.ns, x.sd_ns, x.algbw_gbps, x.busbw_gbps, x.wrong
FROM src.measurement AS x JOIN m_import AS i ON i.old = x.import_id JOIN src.import AS s ON s.id = i.old
JOIN main.import AS m ON m.sha256 = s.sha256 AND m.kind = s.kind
ORDER BY x.id;

INSERT INTO main.checkrun (key, at_ms, profile, product, rig, ranks, nodes, topology_id, host_id, stack_id, pairs,
                           verdict, differs, copy_bytes, copy_ns, launch_ns)
SELECT key, at_ms, profile, product, rig, ranks, nodes, (SELECT new FROM m_topology WHERE old = topology_id),
       (SELECT new FROM m_host WHERE old = host_id), (SELECT new FROM m_stack WHERE old = stack_id), pairs, verdict,
       differs, copy_bytes, copy_ns, launch_ns
FROM src.checkrun WHERE true ORDER BY id ON CONFLICT (key) DO NOTHING;
INSERT INTO main.checkrow (check_id, nr, case_id, setting_id, min_bytes, max_bytes, was_ratio, ratio, lo, hi,
                           default_ns, tuned_ns, default_move, tuned_move, verdict, why)
SELECT m.id, w.nr, k.new, x.new, w.min_bytes, w.max_bytes, w.was_ratio, w.ratio, w.lo, w.hi, w.default_ns, w.tuned_ns,
       w.default_move, w.tuned_move, w.verdict, w.why
FROM src.checkrow AS w JOIN src.checkrun AS r ON r.id = w.check_id JOIN main.checkrun AS m ON m.key = r.key
JOIN m_cases AS k ON k.old = w.case_id JOIN m_setting AS x ON x.old = w.setting_id
WHERE true ON CONFLICT (check_id, nr) DO NOTHING;

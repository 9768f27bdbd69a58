-- Which jobs have all of their raw samples thinned, so that retention looks at each once.
ALTER TABLE job ADD COLUMN thinned INTEGER NOT NULL DEFAULT 0 CHECK (thinned IN (0, 1));
CREATE INDEX job_thinned ON job (finished_ms) WHERE thinned = 0;

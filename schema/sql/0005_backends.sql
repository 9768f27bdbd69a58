-- Who moved the bytes: a setting names its backend, and a trial says whether the result had the bits of NCCL left
-- alone (unknown, same, different).
ALTER TABLE setting ADD COLUMN backend TEXT NOT NULL DEFAULT 'nccl';
ALTER TABLE trial ADD COLUMN bits TEXT NOT NULL DEFAULT 'unknown';

-- The chunk that NCCL would take by itself, as it showed it to the tuner of the search (ABI v6, NCCL 2.30.3 and later);
-- 0: it showed none. What a trial asked for is its setting's chunk_bytes; that it was executed is told by no interface.
ALTER TABLE trial ADD COLUMN own_chunk_bytes INTEGER NOT NULL DEFAULT 0 CHECK (own_chunk_bytes >= 0);

-- Which numbers sequences give out. $1: their numbers in the catalog. That number, increment, least, greatest, last number given out
-- (NULL: none yet, or it may not be read), whether it cycles.
SELECT q.seqrelid, q.seqincrement, q.seqmin, q.seqmax,
       CASE WHEN has_sequence_privilege(q.seqrelid, 'USAGE, SELECT') THEN pg_sequence_last_value(q.seqrelid) END, q.seqcycle
  FROM pg_sequence q WHERE q.seqrelid = ANY ($1::oid[])

-- Which numbers sequences give out. $1: their numbers in the catalog. That number, increment, least, greatest, last number given out
-- (NULL: none yet, or it may not be read), whether it cycles, whether it may be read.
SELECT q.seqrelid, q.seqincrement, q.seqmin, q.seqmax,
       CASE WHEN r.may THEN pg_sequence_last_value(q.seqrelid) END, q.seqcycle, r.may
  FROM pg_sequence q CROSS JOIN LATERAL (SELECT has_sequence_privilege(q.seqrelid, 'SELECT')) r (may)
 WHERE q.seqrelid = ANY ($1::oid[])

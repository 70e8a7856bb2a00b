-- Casts of a table's rows as a whole, and of arrays of them, to the server's own types: such a
-- type is in no column, and in nothing that is kept of an expression over them. Another type
-- that a row is cast to is named, and reached by that. {members}: their numbers. The cast's
-- function and the table. From the casts, of which there are few.
SELECT c.castfunc::oid, l.oid
  FROM pg_cast c
 CROSS JOIN LATERAL (VALUES (c.castsource, c.casttarget), (c.casttarget, c.castsource)) AS e (whole, other)
  JOIN pg_type t ON t.oid = e.whole LEFT JOIN pg_type x ON x.oid = t.typelem
  JOIN pg_class l ON l.oid = coalesce(nullif(t.typrelid, 0), x.typrelid) AND l.oid = ANY ({members})
 WHERE c.oid >= 16384 AND c.castfunc <> 0 AND e.other < 16384

-- Tables of the target whose statistics know little of the rows that have come: never analyzed, or more than a tenth larger than
-- when their size was written down last. $1: schemas, $2: tables, $3: a right beside ownership that allows it (NULL: this
-- version has none). Position, name as SQL writes it, a table or partition that the role may not analyze.
SELECT w.ord - 1, format('%I.%I', w.nsp, w.rel), min(l.oid::regclass::text) FILTER (WHERE NOT r.may)
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (nsp, rel, ord)
  JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
 CROSS JOIN LATERAL (SELECT c.oid UNION SELECT p.relid FROM pg_partition_tree(c.oid) p) AS t (oid)
  JOIN pg_class l ON l.oid = t.oid
 -- A table that is dropped just now has none.
 CROSS JOIN LATERAL (SELECT CASE l.relkind WHEN 'r' THEN coalesce(pg_relation_size(l.oid), 0) / current_setting('block_size')::bigint ELSE 0 END) AS s (pages)
 CROSS JOIN LATERAL (SELECT pg_has_role(l.relowner, 'USAGE') OR coalesce(has_table_privilege(l.oid, $3), false)
                         OR (SELECT pg_has_role(d.datdba, 'USAGE') FROM pg_database d WHERE d.datname = current_database())) AS r (may)
 GROUP BY w.ord, w.nsp, w.rel
HAVING bool_or(s.pages > 0 AND (s.pages > l.relpages * 1.1
                                OR coalesce(pg_stat_get_last_analyze_time(l.oid), pg_stat_get_last_autoanalyze_time(l.oid)) IS NULL))
 ORDER BY w.ord

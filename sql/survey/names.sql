-- Columns that several of the tables $1 have under one name, and that could hold the key: how many have it, how many
-- where NULL is refused, where it is the first of an index, where it alone is the primary key; the table that most of
-- their foreign keys lead to, and how many do; and by the statistics of the largest tables, how many values there are
-- and which part of the rows has the most frequent one.
WITH own AS MATERIALIZED (
    SELECT a.attrelid, a.attnum, a.attname, a.attnotnull, c.relname, c.relnamespace, c.relkind, greatest(c.reltuples, 0)::float8 AS tuples,
           CASE WHEN b.typname IN ('int2', 'int4', 'int8', 'numeric') THEN 'number' WHEN b.typname IN ('text', 'varchar', 'bpchar') THEN 'text' ELSE b.typname END AS family
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
      JOIN pg_type y ON y.oid = a.atttypid
      JOIN pg_type b ON b.oid = CASE WHEN y.typtype = 'd' THEN y.typbasetype ELSE y.oid END
     WHERE c.oid = ANY ($1::oid[]) AND b.typname IN ('int2', 'int4', 'int8', 'numeric', 'text', 'varchar', 'bpchar', 'uuid')
       AND b.typnamespace = 'pg_catalog'::regnamespace
), several AS MATERIALIZED (
    SELECT o.attname FROM own o GROUP BY o.attname
    HAVING count(*) >= 2 AND count(DISTINCT o.family) = 1
), named AS MATERIALIZED (
    SELECT o.* FROM own o JOIN several s USING (attname)
), mark AS MATERIALIZED (
    -- Grouped, and not joined: without statistics of these rows, a join would compare each with each.
    SELECT m.attrelid, m.attnum, min(m.attname::text)::name AS attname, bool_or(m.attnotnull) AS attnotnull, bool_or(m.is_first) AS is_first,
           bool_or(m.is_key) AS is_key, min(m.target) AS target
      FROM (SELECT n.attrelid, n.attnum, n.attname, n.attnotnull, NULL::boolean AS is_first, NULL::boolean AS is_key, NULL::oid AS target FROM named n
            UNION ALL
            SELECT x.indrelid, x.indkey[0], NULL, NULL, true, x.indisprimary AND x.indnkeyatts = 1, NULL
              FROM pg_index x WHERE x.indrelid = ANY ($1::oid[])
            UNION ALL
            SELECT k.conrelid, k.conkey[1], NULL, NULL, NULL, NULL, k.confrelid
              FROM pg_constraint k
             WHERE k.contype = 'f' AND k.conparentid = 0 AND k.conrelid = ANY ($1::oid[]) AND cardinality(k.conkey) = 1 AND k.confrelid <> k.conrelid) m
     GROUP BY m.attrelid, m.attnum HAVING count(m.attname) > 0
), counted AS (
    SELECT m.attname, count(*) AS tables, count(*) FILTER (WHERE m.attnotnull) AS filled, count(*) FILTER (WHERE m.is_first) AS first_of_index,
           count(*) FILTER (WHERE m.is_key) AS alone, count(m.target) AS referring,
           mode() WITHIN GROUP (ORDER BY m.target) AS target, array_agg(m.attrelid ORDER BY m.attrelid) AS of
      FROM mark m GROUP BY m.attname
), likely AS MATERIALIZED (
    SELECT c.* FROM counted c WHERE c.alone * 2 < c.tables AND (c.referring * 3 >= c.tables OR c.first_of_index * 3 >= c.tables)
     ORDER BY c.tables DESC, c.referring DESC, c.attname LIMIT 20
), largest AS MATERIALIZED (
    SELECT o.*, row_number() OVER (PARTITION BY o.attname ORDER BY o.tuples DESC, o.attrelid) AS place
      FROM likely l JOIN named o USING (attname)
), known AS MATERIALIZED (
    -- OFFSET 0: the statistics are found by their indexes, and not joined as a whole.
    SELECT o.attname, o.tuples, s.n_distinct, s.most
      FROM largest o JOIN pg_namespace n ON n.oid = o.relnamespace
     CROSS JOIN LATERAL (
        SELECT s.n_distinct, s.most_common_freqs[1] AS most FROM pg_stats s
         WHERE s.schemaname = n.nspname AND s.tablename = o.relname AND s.attname = o.attname AND s.inherited = (o.relkind = 'p') OFFSET 0) s
     WHERE o.place <= 5
)
SELECT l.attname, l.tables, l.filled, l.first_of_index, l.referring, l.target,
       (SELECT max(CASE WHEN k.n_distinct < 0 THEN -k.n_distinct * k.tuples ELSE k.n_distinct END)::bigint FROM known k WHERE k.attname = l.attname),
       (SELECT max(k.most) FROM known k WHERE k.attname = l.attname), array_to_json(l.of)
  FROM likely l

-- Of tables whose rows are not all this shard's, those that their plain names stand for in this session: the shard-by
-- column's type without domains, the columns that the session may read, and whether there are others.
SELECT w.ord,
       CASE WHEN b.oid < 16384 THEN pg_catalog.format_type(b.oid, -1)
            ELSE pg_catalog.format('%I.%I', (SELECT y.nspname FROM pg_catalog.pg_namespace y WHERE y.oid = b.typnamespace), b.typname) END,
       (SELECT pg_catalog.string_agg('r.' || pg_catalog.quote_ident(c.attname), ', ' ORDER BY c.attnum)
          FROM pg_catalog.pg_attribute c
         WHERE c.attrelid = t.oid AND c.attnum > 0 AND NOT c.attisdropped
           AND pg_catalog.has_column_privilege(t.oid, c.attnum, 'SELECT')),
       EXISTS (SELECT FROM pg_catalog.pg_attribute c
                WHERE c.attrelid = t.oid AND c.attnum > 0 AND NOT c.attisdropped
                  AND NOT pg_catalog.has_column_privilege(t.oid, c.attnum, 'SELECT'))
  FROM ROWS FROM (pg_catalog.unnest({schemas}::pg_catalog.text[]), pg_catalog.unnest({names}::pg_catalog.text[]),
                  pg_catalog.unnest({columns}::pg_catalog.text[])) WITH ORDINALITY AS w (nsp, rel, col, ord)
  JOIN pg_catalog.pg_namespace n ON n.nspname = w.nsp AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
  JOIN pg_catalog.pg_class t ON t.relnamespace = n.oid AND t.relname = w.rel AND t.relkind IN ('r', 'p')
  JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attname = w.col AND NOT a.attisdropped
 CROSS JOIN LATERAL (
    WITH RECURSIVE inner_type (oid, typname, typnamespace, typtype, typbasetype) AS (
        SELECT y.oid, y.typname, y.typnamespace, y.typtype, y.typbasetype FROM pg_catalog.pg_type y WHERE y.oid = a.atttypid
        UNION ALL
        SELECT y.oid, y.typname, y.typnamespace, y.typtype, y.typbasetype
          FROM inner_type d JOIN pg_catalog.pg_type y ON d.typtype = 'd' AND y.oid = d.typbasetype
    )
    SELECT i.oid, i.typname, i.typnamespace FROM inner_type i WHERE i.typtype <> 'd') b
 WHERE pg_catalog.pg_table_is_visible(t.oid)
 ORDER BY w.ord

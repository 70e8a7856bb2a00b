-- What gives columns of keys their values, besides statements. $1: tables. Position of the table, counted from 1; what: 'name' of the table or of a
-- partition, 'key' (a column of a key, or one that it is computed from, and the key's number), 'default' (a column, and the text of its default, of its domain's, or of what it is generated from), 'trigger' (a
-- function that may change a row before it is written: its number), 'closed' (the same of a function that nobody reads here: its name,
-- and its text and what the trigger tells it).
SELECT w.position, f.what, f.name, f.text
  FROM unnest($1::oid[]) WITH ORDINALITY w (relation, position)
 CROSS JOIN LATERAL (SELECT w.relation UNION SELECT p.relid FROM pg_partition_tree(w.relation) p) m (relation)
 CROSS JOIN LATERAL (
    SELECT 'name', lower(c.relname), NULL FROM pg_class c WHERE c.oid = m.relation
    UNION
    SELECT 'key', a.attname, i.indexrelid::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum > 0
     WHERE i.indrelid = m.relation AND (i.indisunique OR i.indisexclusion)
       AND (a.attnum = ANY (i.indkey) OR i.indexprs::text ~ (':varattno ' || a.attnum || ' ')
            OR EXISTS (SELECT 1 FROM pg_attribute v JOIN pg_attrdef g ON g.adrelid = v.attrelid AND g.adnum = v.attnum
                        WHERE v.attrelid = i.indrelid AND v.attgenerated <> '' AND v.attnum = ANY (i.indkey) AND g.adbin::text ~ (':varattno ' || a.attnum || ' ')))
    UNION
    SELECT 'default', a.attname, pg_get_expr(d.adbin, d.adrelid)
      FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum WHERE d.adrelid = m.relation
    UNION
    SELECT 'default', a.attname, p.typdefault
      FROM pg_attribute a
     CROSS JOIN LATERAL (
        WITH RECURSIVE domain (oid) AS (
            SELECT a.atttypid
            UNION
            SELECT y.typbasetype FROM domain o JOIN pg_type y ON y.oid = o.oid WHERE y.typtype = 'd' AND y.typbasetype >= 16384
        )
        SELECT y.typdefault FROM domain o JOIN pg_type y ON y.oid = o.oid WHERE y.typtype = 'd') p
     WHERE m.relation = w.relation AND a.attrelid = w.relation AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384 AND p.typdefault IS NOT NULL
    UNION
    SELECT CASE WHEN l.lanname IN ('sql', 'plpgsql') THEN 'trigger' ELSE 'closed' END,
           CASE WHEN l.lanname IN ('sql', 'plpgsql') THEN g.tgfoid::text ELSE p.proname END,
           concat_ws(' ', CASE WHEN l.lanname NOT IN ('sql', 'plpgsql', 'c', 'internal') THEN p.prosrc END, {told})
      FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid JOIN pg_language l ON l.oid = p.prolang
     WHERE g.tgrelid = m.relation AND NOT g.tgisinternal AND g.tgenabled <> 'D' AND g.tgtype & 3 = 3 AND g.tgtype & 20 <> 0
       AND p.pronamespace IS DISTINCT FROM to_regnamespace('shardmaster_agent')
  ) f (what, name, text)
 ORDER BY 1, 2, 3, 4

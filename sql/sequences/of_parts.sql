-- The same of what draws for columns besides the table's own defaults: those of its partitions, which statements may name
-- themselves, and the defaults of the columns' domains. $1: tables.
SELECT DISTINCT w.position, a.attname, f.how, s.oid, format('%I.%I', n.nspname, s.relname), n.nspname, s.relname, q.seqcycle,
       CASE WHEN NOT pg_has_role(t.relowner, s.relowner, 'USAGE')
             AND NOT has_sequence_privilege(t.relowner, s.oid, 'UPDATE') THEN t.relowner::regrole END,
       EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = m.relation AND i.indisunique AND a.attnum = ANY (i.indkey)),
       {holds}
  FROM unnest($1::oid[]) WITH ORDINALITY w (relation, position)
 CROSS JOIN LATERAL (SELECT w.relation UNION SELECT p.relid FROM pg_partition_tree(w.relation) p) m (relation)
 CROSS JOIN LATERAL (
    SELECT p.refobjsubid, p.objid, CASE p.deptype WHEN 'i' THEN 'identity' ELSE 'owned' END FROM pg_depend p
     WHERE m.relation <> w.relation AND p.refclassid = 'pg_class'::regclass AND p.refobjid = m.relation
       AND p.classid = 'pg_class'::regclass AND p.deptype IN ('a', 'i')
    UNION
    SELECT d.adnum, p.refobjid, 'default' FROM pg_attrdef d
     CROSS JOIN LATERAL (
        SELECT * FROM pg_depend p
         WHERE p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid AND p.refclassid = 'pg_class'::regclass OFFSET 0) p
     WHERE m.relation <> w.relation AND d.adrelid = m.relation
    UNION
    SELECT c.attnum, p.refobjid, 'default' FROM pg_attribute c
     CROSS JOIN LATERAL (
        WITH RECURSIVE domain (oid) AS (
            SELECT c.atttypid
            UNION
            SELECT y.typbasetype FROM domain o JOIN pg_type y ON y.oid = o.oid WHERE y.typtype = 'd' AND y.typbasetype >= 16384
        )
        SELECT d.refobjid FROM domain o
          JOIN pg_depend d ON d.classid = 'pg_type'::regclass AND d.objid = o.oid AND d.refclassid = 'pg_class'::regclass OFFSET 0) p
     WHERE m.relation = w.relation AND c.attrelid = w.relation AND c.attnum > 0 AND NOT c.attisdropped AND c.atttypid >= 16384
  ) f (attnum, sequence, how)
  JOIN pg_class s ON s.oid = f.sequence AND s.relkind = 'S'
  JOIN pg_attribute a ON a.attrelid = m.relation AND a.attnum = f.attnum AND a.attnum > 0 AND NOT a.attisdropped
  JOIN pg_class t ON t.oid = w.relation
  JOIN pg_namespace n ON n.oid = s.relnamespace
  JOIN pg_sequence q ON q.seqrelid = s.oid
  JOIN pg_type y ON y.oid = a.atttypid
 CROSS JOIN LATERAL (SELECT CASE WHEN y.typtype = 'd' THEN y.typtypmod ELSE a.atttypmod END) m0 (modifier)
 CROSS JOIN LATERAL (SELECT m0.modifier, ((m0.modifier - 4) >> 16 & 65535) - ((m0.modifier - 4) & 2047)) v (modifier, digits)
 ORDER BY 1, 2, 5, 3

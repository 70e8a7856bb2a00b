-- The sequences that fill columns of some tables, and what their numbers come into. $1: schemas, $2: tables, $3: shard-by
-- columns. A row for each column that one fills: position of the table; the column's name; the sequence's number,
-- and its name, quoted; increment, least, greatest, last number given out (NULL: none yet), whether it cycles; whether the
-- mover may read it, and set it; whose it is; the greatest number that the column can hold and whatever refers to it, and
-- which column that is; whether the column is in a unique key without the shard-by column; whether an index begins with it;
-- what has no place for numbers far beyond those of now; whether the column's values are numbers; what may fail for such numbers, or
-- make the same of two of them, and where it starts anew: an expression is harmless that only compares from below, casts to what holds every number, or writes
-- it into a text.
WITH RECURSIVE wanted AS (
    SELECT w.ord - 1 AS position, c.oid, w.shard_by
      FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS w (nsp, rel, shard_by, ord)
      JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
     WHERE c.relkind IN ('r', 'p')
), filled AS (
    -- By what is theirs, by their defaults, those of their partitions and of their domains.
    SELECT DISTINCT w.position, w.oid, w.shard_by, r.attnum, f.sequence
      FROM wanted w
     CROSS JOIN LATERAL (SELECT w.oid UNION SELECT p.relid FROM pg_partition_tree(w.oid) p) m (relation)
     CROSS JOIN LATERAL (
        SELECT p.refobjsubid, p.objid FROM pg_depend p
         WHERE p.refclassid = 'pg_class'::regclass AND p.refobjid = m.relation
           AND p.classid = 'pg_class'::regclass AND p.deptype IN ('a', 'i')
        UNION
        SELECT d.adnum, p.refobjid FROM pg_attrdef d
          JOIN pg_depend p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid AND p.refclassid = 'pg_class'::regclass
         WHERE d.adrelid = m.relation
        UNION
        SELECT c.attnum, p.sequence FROM pg_attribute c
         CROSS JOIN LATERAL (
            WITH RECURSIVE domain (oid) AS (
                SELECT c.atttypid
                UNION
                SELECT y.typbasetype FROM domain o JOIN pg_type y ON y.oid = o.oid WHERE y.typtype = 'd' AND y.typbasetype >= 16384
            )
            SELECT d.refobjid FROM domain o
              JOIN pg_depend d ON d.classid = 'pg_type'::regclass AND d.objid = o.oid AND d.refclassid = 'pg_class'::regclass) p (sequence)
         WHERE m.relation = w.oid AND c.attrelid = w.oid AND c.attnum > 0 AND NOT c.attisdropped AND c.atttypid >= 16384
      ) f (attnum, sequence)
      JOIN pg_class s ON s.oid = f.sequence AND s.relkind = 'S'
      JOIN pg_attribute a ON a.attrelid = m.relation AND a.attnum = f.attnum AND f.attnum > 0
      JOIN pg_attribute r ON r.attrelid = w.oid AND r.attname = a.attname
), holder (oid, attnum, relation, held) AS (
    -- The column, others that the sequence fills, of whatever table, and those that refer to one of them, and so on.
    SELECT f.oid, f.attnum, f.oid, f.attnum::int2 FROM filled f
    UNION
    SELECT f.oid, f.attnum, d.adrelid, d.adnum
      FROM filled f JOIN pg_depend p ON p.refclassid = 'pg_class'::regclass AND p.refobjid = f.sequence AND p.classid = 'pg_attrdef'::regclass
      JOIN pg_attrdef d ON d.oid = p.objid
    UNION
    SELECT h.oid, h.attnum, k.conrelid, k.conkey[array_position(k.confkey, h.held)]
      FROM holder h JOIN pg_constraint k ON k.contype = 'f' AND k.confrelid = h.relation AND h.held = ANY (k.confkey)
), room AS (
    SELECT h.oid, h.attnum, format('%s.%I (%s)', h.relation::regclass, a.attname, format_type(a.atttypid, a.atttypmod)) AS of,
           CASE b.type WHEN 'int2'::regtype THEN 32767 WHEN 'int4'::regtype THEN 2147483647 WHEN 'int8'::regtype THEN 9223372036854775807
                       WHEN 'float4'::regtype THEN 16777216 WHEN 'float8'::regtype THEN 9007199254740992
                       WHEN 'text'::regtype THEN 9223372036854775807
                       WHEN 'varchar'::regtype THEN CASE b.modifier WHEN -1 THEN 9223372036854775807 ELSE 0 END
                       WHEN 'numeric'::regtype THEN
                            CASE WHEN b.modifier = -1 THEN 9223372036854775807
                                 WHEN (b.modifier - 4) & 65535 = 0
                                 THEN least(power(10::numeric, (b.modifier - 4) >> 16 & 65535) - 1, 9223372036854775807)::bigint
                                 ELSE 0 END
                       ELSE 0 END AS greatest
      FROM holder h JOIN pg_attribute a ON a.attrelid = h.relation AND a.attnum = h.held
     CROSS JOIN LATERAL (
        WITH RECURSIVE base (type, modifier) AS (
            SELECT a.atttypid, a.atttypmod
            UNION ALL
            SELECT t.typbasetype, t.typtypmod FROM base b JOIN pg_type t ON t.oid = b.type AND t.typtype = 'd')
        SELECT b.type, b.modifier FROM base b JOIN pg_type t ON t.oid = b.type AND t.typtype <> 'd') b
), tree AS (
    SELECT DISTINCT w.oid AS root, w.shard_by, l.oid
      FROM wanted w CROSS JOIN LATERAL (SELECT w.oid UNION SELECT p.relid FROM pg_partition_tree(w.oid) p) l (oid)
)
SELECT f.position, a.attname, f.sequence, format('%I.%I', n.nspname, s.relname),
       q.seqincrement, q.seqmin, q.seqmax,
       CASE WHEN r.may_read THEN pg_sequence_last_value(f.sequence) END, q.seqcycle, r.may_read,
       -- A default of somebody who could not set it himself does not have it set.
       pg_has_role(s.relowner, 'USAGE') AND pg_has_role(t.relowner, s.relowner, 'USAGE'), s.relowner::regrole, m.greatest, m.of, u.is_needed,
       EXISTS (SELECT 1 FROM pg_index i
                WHERE i.indrelid = f.oid AND i.indisvalid AND i.indkey[0] = f.attnum AND i.indpred IS NULL),
       (SELECT format('partitions of %s by %I', p.partrelid::regclass, a.attname)
          FROM tree t JOIN pg_partitioned_table p ON p.partrelid = t.oid
          JOIN pg_attribute k ON k.attrelid = t.oid AND k.attname = a.attname
         WHERE t.root = f.oid AND p.partstrat IN ('r', 'l') AND p.partdefid = 0 AND k.attnum = ANY (p.partattrs::int2[]) LIMIT 1),
       b.type = ANY ('{int2,int4,int8,numeric,float4,float8}'::regtype[]),
       (SELECT format('%I, whose %s', a.attname, x.what) FROM (
            SELECT format('DEFAULT %s', e.text), e.text !~ '^\(*nextval\(\(*(''([^'']|'''')*''(::(text|character varying))?\)*::regclass)\)[()]*(::(bigint|numeric|text|character varying)\)*)*$'
              FROM tree t JOIN pg_attribute k ON k.attrelid = t.oid AND k.attname = a.attname
              JOIN pg_attrdef d ON d.adrelid = t.oid AND d.adnum = k.attnum AND k.attgenerated = ''
             CROSS JOIN LATERAL (SELECT pg_get_expr(d.adbin, d.adrelid)) e (text)
             WHERE t.root = f.oid
            UNION ALL
            SELECT format('CHECK %I', k.conname),
                   pg_get_expr(k.conbin, k.conrelid) !~ format('^\(*%s\)* (IS NOT NULL|(>|>=|<>) \(?''?-?[0-9]+''?)(\)|::bigint|::integer|::numeric)*$', regexp_replace(quote_ident(a.attname), '([^A-Za-z0-9_"])', '\\\1', 'g'))
              FROM tree t JOIN pg_attribute c ON c.attrelid = t.oid AND c.attname = a.attname
              JOIN pg_constraint k ON k.conrelid = t.oid AND k.contype = 'c' AND c.attnum = ANY (k.conkey)
             WHERE t.root = f.oid
            UNION ALL
            SELECT format('CHECK %I of domain %s', k.conname, k.contypid::regtype),
                   -- Which is asked of each constraint before its domain is.
                   CASE WHEN k.contypid <> 0 THEN pg_get_expr(k.conbin, 0) !~ '^\(*VALUE\)* (IS NOT NULL|(>|>=|<>) \(?''?-?[0-9]+''?)(\)|::bigint|::integer|::numeric)*$' END
              FROM unnest(b.domains) o (oid) JOIN pg_constraint k ON k.contypid = o.oid AND k.contype = 'c'
            UNION ALL
            SELECT format('generated column %I', g.attname),
                   g.atttypid <> ALL ('{int8,numeric,text,varchar}'::regtype[]) OR g.atttypmod <> -1 OR e.text ~ h.pattern
              FROM pg_attribute g JOIN pg_attrdef d ON d.adrelid = g.attrelid AND d.adnum = g.attnum
             CROSS JOIN LATERAL (SELECT pg_get_expr(d.adbin, d.adrelid)) e (text)
             WHERE g.attrelid = f.oid AND g.attgenerated <> '' AND d.adbin::text ~ (':varattno ' || a.attnum || ' ')
            UNION ALL
            SELECT format('index %s', i.indexrelid::regclass), concat_ws(' ', pg_get_expr(i.indexprs, i.indrelid), pg_get_expr(i.indpred, i.indrelid)) ~ h.pattern
              FROM tree t JOIN pg_index i ON i.indrelid = t.oid JOIN pg_attribute c ON c.attrelid = t.oid AND c.attname = a.attname
             WHERE t.root = f.oid AND concat(i.indexprs::text, i.indpred::text) ~ (':varattno ' || c.attnum || ' ')
        ) AS x (what, is_narrow) WHERE x.is_narrow LIMIT 1),
       q.seqstart
  FROM filled f
  JOIN pg_attribute a ON a.attrelid = f.oid AND a.attnum = f.attnum AND NOT a.attisdropped
  JOIN pg_class t ON t.oid = f.oid
  JOIN pg_class s ON s.oid = f.sequence JOIN pg_namespace n ON n.oid = s.relnamespace JOIN pg_sequence q ON q.seqrelid = s.oid
 CROSS JOIN LATERAL (
    WITH RECURSIVE base (type) AS (
        SELECT a.atttypid
        UNION ALL
        SELECT t.typbasetype FROM base b JOIN pg_type t ON t.oid = b.type AND t.typtype = 'd')
    SELECT max(b.type::oid::int8) FILTER (WHERE t.typtype <> 'd')::oid::regtype, array_agg(b.type::oid) FILTER (WHERE t.typtype = 'd')
      FROM base b JOIN pg_type t ON t.oid = b.type) b (type, domains)
 -- A call, a product, or a cast to what is narrower.
 CROSS JOIN (VALUES ('[a-z0-9_"]\(|[*^]|<<|::(?!bigint|text|numeric([^(]|$)|character varying([^(]|$))')) h (pattern)
 CROSS JOIN LATERAL (SELECT has_sequence_privilege(f.sequence, 'SELECT') AS may_read) r
 CROSS JOIN LATERAL (SELECT o.greatest, o.of FROM room o WHERE o.oid = f.oid AND o.attnum = f.attnum ORDER BY o.greatest, o.of LIMIT 1) m
 CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT 1 FROM tree t JOIN pg_index i ON i.indrelid = t.oid JOIN pg_class x ON x.oid = i.indexrelid AND NOT x.relispartition
          JOIN pg_attribute k ON k.attrelid = t.oid AND k.attname = a.attname AND NOT k.attisdropped
          LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.contype = 'x'
         WHERE t.root = f.oid AND (i.indisunique OR i.indisexclusion)
           AND (k.attnum = ANY (i.indkey::int2[])
                OR EXISTS (SELECT 1 FROM pg_depend d
                            WHERE d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
                              AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.oid AND d.refobjsubid = k.attnum))
           AND NOT EXISTS (SELECT 1 FROM unnest(i.indkey::int2[], i.indcollation::oid[], c.conexclop) WITH ORDINALITY AS e (attnum, coll, operator, ord)
                             JOIN pg_attribute b ON b.attrelid = t.oid AND b.attnum = e.attnum AND b.attname = t.shard_by
                             LEFT JOIN pg_operator o ON o.oid = e.operator LEFT JOIN pg_collation l ON l.oid = e.coll
                            WHERE e.ord <= i.indnkeyatts AND coalesce(o.oprname, '=') = '=' AND coalesce(l.collisdeterministic, true))) AS is_needed) u
 ORDER BY 1, 2, 4

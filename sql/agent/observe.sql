-- What a step must know of a shard, in the step's snapshot: who the server is and
-- what its tables look like. $1: schemas, $2: tables, $3: prefix of our triggers, $4: the
-- trigger function of each table, $5: its shard-by column, $6, $7: what texts name in
-- schemas, $8: the columns whose text is read anew.
--
-- A type of the server's own is known by its name. Of all others, what they are made of
-- is taken down to such types and to those of extensions: part, to a bound. Catalogs that differ
-- between versions are read as jsonb.
WITH RECURSIVE wanted AS (
    SELECT w.nsp, w.rel, w.function, w.shard_by, w.ord, c.oid, c.relkind
      FROM unnest($1::text[], $2::text[], $4::text[], $5::text[]) WITH ORDINALITY AS w (nsp, rel, function, shard_by, ord)
      LEFT JOIN (pg_class c JOIN pg_namespace cn ON cn.oid = c.relnamespace)
             ON cn.nspname = w.nsp AND c.relname = w.rel
), loose (oid, equality) AS (
    -- What decides whether two texts are equal, where it is not their bytes.
    SELECT co.oid, concat_ws(' ', co.collprovider,
                             coalesce(j.facts ->> 'colllocale', j.facts ->> 'colliculocale', j.facts ->> 'collcollate'),
                             j.facts ->> 'collicurules', pg_collation_actual_version(co.oid))
      FROM pg_collation co, LATERAL to_jsonb(co) AS j (facts)
     WHERE NOT co.collisdeterministic
), part (root, path, oid, modifier, coll) AS (
    SELECT DISTINCT a.atttypid, ARRAY[]::text[] COLLATE "C", a.atttypid, -1, 0::oid
      FROM wanted w JOIN pg_attribute a ON a.attrelid = w.oid AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT p.root, p.path || child.step, child.oid, child.modifier, child.coll
      FROM part p JOIN pg_type t ON t.oid = p.oid AND cardinality(p.path) < {depth}
     CROSS JOIN LATERAL (
        SELECT 'element', t.typelem, -1, 0::oid WHERE t.typtype = 'b' AND t.typcategory = 'A' AND t.typelem <> 0
        UNION ALL
        SELECT 'base', t.typbasetype, t.typtypmod, t.typcollation WHERE t.typtype = 'd'
        UNION ALL
        SELECT format('%s %s', lpad(row_number() OVER (ORDER BY a.attnum)::text, 4, '0'), a.attname),
               a.atttypid, a.atttypmod, a.attcollation
          FROM pg_attribute a
         WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL
        SELECT 'subtype', r.rngsubtype, -1, r.rngcollation FROM pg_range r
         WHERE t.typtype = 'r' AND t.oid >= 16384 AND r.rngtypid = t.oid
        UNION ALL
        SELECT 'range', r.rngtypid, -1, 0 FROM pg_range r
         WHERE t.typtype = 'm' AND t.oid >= 16384 AND (to_jsonb(r) ->> 'rngmultitypid')::oid = t.oid
     ) AS child (step, oid, modifier, coll)
), bounded AS (
    -- Types in types, each twice in the next one, have no end that anybody comes to. Rows are
    -- made as they are asked for, so nobody makes those behind the last one.
    SELECT * FROM part LIMIT {parts} + 1
), endless (root) AS (
    SELECT b.root FROM bounded b
     WHERE cardinality(b.path) = {depth} OR (SELECT count(*) FROM bounded) > {parts}
     GROUP BY b.root ORDER BY max(cardinality(b.path)) DESC, count(*) DESC LIMIT 1
), fact AS (
    SELECT p.root, p.path, t.oid, t.typtype::text AS kind, p.modifier, e.extname,
           t.typtype = 'b' AND t.typcategory = 'A' AND t.typelem <> 0 AS is_array,
           -- What the same value means, or how it is written, these say by a server's settings and version.
           CASE WHEN t.oid = 'money'::regtype THEN format('money by lc_monetary %s', (SELECT s.reset_val FROM pg_settings s WHERE s.name = 'lc_monetary'))
                WHEN t.oid = '"char"'::regtype
                    THEN format('"char" as versions %s 16 write it', CASE WHEN current_setting('server_version_num')::int < 160000 THEN 'before' ELSE 'from' END)
                WHEN t.oid < 16384 THEN format_type(t.oid, p.modifier)
                WHEN e.extname IS NOT NULL THEN format('%s of extension %s', t.typname, e.extname)
                WHEN t.typtype = 'e' THEN (SELECT format('enum (%s)', string_agg(quote_literal(l.enumlabel), ', ' ORDER BY l.enumsortorder))
                                             FROM pg_enum l WHERE l.enumtypid = t.oid)
                WHEN t.typtype = 'd' THEN concat_ws(' ', 'domain', CASE WHEN t.typnotnull THEN 'not null' END,
                                                    (SELECT string_agg(d.text, ' ' ORDER BY d.text COLLATE "C")
                                                       FROM (SELECT pg_get_constraintdef(k.oid) AS text FROM pg_constraint k
                                                              WHERE k.contypid = t.oid AND k.contype = 'c') d))
                WHEN t.typtype = 'c' THEN 'composite'
                WHEN t.typtype = 'r' THEN (SELECT format('range by %s%s', o.opcname, ' canonical ' || nullif(r.rngcanonical::oid, 0)::regproc)
                                             FROM pg_range r JOIN pg_opclass o ON o.oid = r.rngsubopc WHERE r.rngtypid = t.oid)
                WHEN t.typtype = 'm' THEN 'multirange'
                WHEN t.typcategory = 'A' AND t.typelem <> 0 THEN 'array'
                ELSE format_type(t.oid, p.modifier) END
           || CASE WHEN p.coll NOT IN (0, 100) THEN ' collate ' || p.coll::regcollation ELSE '' END
           || coalesce((SELECT format(' (%s)', lo.equality) FROM loose lo WHERE lo.oid = p.coll), '') AS text
      FROM bounded p JOIN pg_type t ON t.oid = p.oid AND NOT EXISTS (SELECT 1 FROM endless)
      LEFT JOIN (pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e')
             ON d.classid = 'pg_type'::regclass
            AND d.objid = CASE WHEN t.typtype = 'b' AND t.typcategory = 'A' AND t.typelem <> 0 THEN t.typelem ELSE t.oid END
), type AS MATERIALIZED (
    -- Once for all tables, not once for each.
    SELECT f.root,
           string_agg(concat_ws(' ', nullif(array_to_string(f.path, '/'), ''), f.text), '; ' ORDER BY f.path)
               FILTER (WHERE f.root >= 16384 OR f.oid IN ('money'::regtype, '"char"'::regtype)) AS signature,
           -- An attribute that is dropped and made again has another number.
           string_agg((SELECT string_agg(a.attnum::text, ' ' ORDER BY a.attnum) FROM pg_attribute a
                        WHERE f.kind = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped),
                      '; ' ORDER BY f.path) AS numbers,
           -- What it is under its domains.
           (array_agg(f.oid ORDER BY cardinality(f.path)) FILTER (WHERE f.path <@ ARRAY['base'] AND f.kind <> 'd'))[1] AS base,
           (array_agg(f.modifier ORDER BY cardinality(f.path)) FILTER (WHERE f.path <@ ARRAY['base'] AND f.kind <> 'd'))[1] AS modifier,
           json_agg(json_build_object('name', CASE WHEN f.extname IS NULL THEN format_type(f.oid, NULL) ELSE t.typname END,
                                      'kind', f.kind, 'extension', f.extname,
                                      'builtin', f.oid < 16384))
               FILTER (WHERE NOT f.is_array AND (f.kind NOT IN ('c', 'd') OR f.extname IS NOT NULL)
                         AND (f.kind NOT IN ('r', 'm') OR f.oid < 16384)) AS parts
      FROM fact f JOIN pg_type t ON t.oid = f.oid GROUP BY f.root
), ran (facts) AS MATERIALIZED (
    SELECT {code}
), kin AS MATERIALIZED (
    -- All that this look is read from, and what the tables could run: the stamp says whether any of it is another by now.
    SELECT k.*, ARRAY(
        SELECT c.relnamespace FROM pg_class c WHERE c.oid = ANY (k.relations)
        UNION SELECT t.typnamespace FROM pg_type t WHERE t.oid = ANY (k.types)
        UNION SELECT p.pronamespace FROM pg_proc p WHERE p.oid = ANY (k.functions)
        UNION SELECT o.oprnamespace FROM pg_operator o WHERE o.oid = ANY (k.operators)
        UNION SELECT o.opcnamespace FROM pg_opclass o WHERE o.oid = ANY (k.classes)
        UNION SELECT c.collnamespace FROM pg_collation c WHERE c.oid = ANY (k.collations)) AS schemas
      FROM (
        SELECT ARRAY(
                   SELECT unnest((r.facts ->> 'relations')::oid[])
                   UNION SELECT p.relid FROM unnest((r.facts ->> 'relations')::oid[]) m, pg_partition_ancestors(m) p
                   UNION SELECT unnest((r.facts -> 'reached' ->> 'pg_class')::oid[])
                   UNION SELECT t.typrelid FROM bounded b JOIN pg_type t ON t.oid = b.oid AND t.typrelid <> 0) AS relations,
               ARRAY(SELECT b.oid FROM bounded b
                      UNION SELECT unnest((r.facts -> 'reached' ->> 'pg_type')::oid[])) AS types,
               (r.facts -> 'reached' ->> 'pg_proc')::oid[] AS functions,
               (r.facts -> 'reached' ->> 'pg_operator')::oid[] AS operators,
               (r.facts -> 'reached' ->> 'pg_opclass')::oid[] AS classes,
               ARRAY(SELECT a.attcollation FROM wanted w JOIN pg_attribute a ON a.attrelid = w.oid AND a.attnum > 0
                      UNION SELECT b.coll FROM bounded b) AS collations,
               (r.facts ->> 'owners')::oid[] AS owners, (r.facts ->> 'sequences')::oid[] AS sequences,
               (r.facts ->> 'spaces')::name[] AS spaces, (r.facts ->> 'words')::name[] AS words
          FROM ran r) AS k
)
SELECT json_build_object(
    'snapshot', pg_current_snapshot()::text,
    'server', {server},
    'encoding', current_setting('server_encoding'),
    'code', (SELECT r.facts ->> 'number' FROM ran r),
    'stamp', {stamp},
    'kin', (SELECT json_build_array(k.relations::text, k.types::text, k.functions::text, k.operators::text, k.classes::text,
                                    k.collations::text, k.schemas::text, k.owners::text, k.sequences::text,
                                    k.spaces::text, k.words::text) FROM kin k),
    'endless', (SELECT format('%I.%I.%I: type %s', w.nsp, w.rel, a.attname, format_type(e.root, NULL))
                  FROM endless e JOIN pg_attribute a ON a.atttypid = e.root AND a.attnum > 0 AND NOT a.attisdropped
                  JOIN wanted w ON w.oid = a.attrelid ORDER BY w.ord, a.attnum LIMIT 1),
    'tables', (
        SELECT coalesce(json_agg(json_build_object(
            'oid', w.oid::text,
            'name', format('%I.%I', w.nsp, w.rel),
            'kind', w.relkind::text,
            'columns', (
                SELECT json_agg(json_build_object(
                    'name', a.attname,
                    'number', concat_ws(' of ', a.attnum, ty.numbers),
                    'type', format_type(a.atttypid, a.atttypmod),
                    -- -1 and not NULL, which would call char(n) by the name of char(1)
                    'base', format_type(ty.base, -1),
                    'stored', format_type(ty.base, CASE WHEN ty.base = a.atttypid THEN a.atttypmod ELSE ty.modifier END),
                    'is_enum', bt.typtype = 'e',
                    -- Of a key: a label may change its name, and another one take it.
                    'labels', CASE WHEN bt.typtype = 'e' AND a.attname = w.shard_by THEN (
                        SELECT json_object_agg(l.enumlabel, l.oid::text) FROM pg_enum l WHERE l.enumtypid = bt.oid) END,
                    'builtin', a.atttypid < 16384,
                    'signature', ty.signature,
                    'parts', coalesce(ty.parts, '[]'),
                    'collation', CASE WHEN a.attcollation <> bt.typcollation
                                      THEN a.attcollation::regcollation::text END,
                    'equality', (SELECT lo.equality FROM loose lo WHERE lo.oid = a.attcollation),
                    'not_null', a.attnotnull,
                    'is_validated', NOT EXISTS (SELECT 1 FROM pg_constraint n
                                                 WHERE n.conrelid = w.oid AND n.contype = 'n' AND n.conkey = ARRAY[a.attnum]
                                                   AND NOT n.convalidated),
                    -- Its own, or else its domain's.
                    'has_default', a.attgenerated = '' AND (a.atthasdef OR a.attidentity <> ''
                                                            OR EXISTS (SELECT 1 FROM pg_type d WHERE d.oid = a.atttypid AND d.typdefault IS NOT NULL)),
                    'generated', CASE WHEN a.attgenerated <> '' THEN (
                        SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d
                         WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum) END) ORDER BY a.attnum)
                  FROM pg_attribute a JOIN type ty ON ty.root = a.atttypid JOIN pg_type bt ON bt.oid = ty.base
                 WHERE a.attrelid = w.oid AND a.attnum > 0 AND NOT a.attisdropped),
            -- What ALTER TABLE has written of its columns: a rewrite that changes values is among it,
            -- also one that leaves the type as it is.
            'altered', (
                SELECT md5(string_agg(concat(a.attnum, ' ', a.xmin), ',' ORDER BY a.attnum))
                  FROM pg_attribute a WHERE a.attrelid = w.oid AND a.attnum > 0),
            'key', (
                SELECT json_agg(a.attname ORDER BY k.ord)
                  FROM pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, ord), pg_attribute a
                 WHERE i.indrelid = w.oid AND i.indisprimary AND k.ord <= i.indnkeyatts
                   AND a.attrelid = w.oid AND a.attnum = k.attnum),
            -- The equality that the key itself goes by; NULL where its index has none.
            'operators', (
                SELECT json_agg((SELECT format('OPERATOR(%I.%s)', n.nspname, o.oprname)
                                   FROM pg_opclass oc
                                   JOIN pg_amop ao ON ao.amopfamily = oc.opcfamily AND ao.amopstrategy = 3
                                                  AND ao.amoplefttype = oc.opcintype AND ao.amoprighttype = oc.opcintype
                                   JOIN pg_am am ON am.oid = ao.amopmethod AND am.amname = 'btree'
                                   JOIN pg_operator o ON o.oid = ao.amopopr JOIN pg_namespace n ON n.oid = o.oprnamespace
                                  WHERE oc.oid = k.opclass) ORDER BY k.ord)
                  FROM pg_index i, unnest(i.indclass::oid[]) WITH ORDINALITY AS k (opclass, ord)
                 WHERE i.indrelid = w.oid AND i.indisprimary AND k.ord <= i.indnkeyatts),
            -- What it compares: of a column's own type there may be an operator of that name, too.
            -- In the server's own schema nobody makes one.
            'operands', (
                SELECT json_agg((SELECT format_type(t.oid, NULL)
                                   FROM pg_opclass oc JOIN pg_type t ON t.oid = oc.opcintype AND t.typtype <> 'p'
                                   JOIN pg_amop ao ON ao.amopfamily = oc.opcfamily AND ao.amopstrategy = 3
                                                  AND ao.amoplefttype = oc.opcintype AND ao.amoprighttype = oc.opcintype
                                   JOIN pg_operator o ON o.oid = ao.amopopr AND o.oprnamespace <> 'pg_catalog'::regnamespace
                                  WHERE oc.oid = k.opclass) ORDER BY k.ord)
                  FROM pg_index i, unnest(i.indclass::oid[]) WITH ORDINALITY AS k (opclass, ord)
                 WHERE i.indrelid = w.oid AND i.indisprimary AND k.ord <= i.indnkeyatts),
            'leaves', (
                SELECT json_agg(json_build_object(
                    'oid', l.oid::text,
                    'name', format('%I.%I', n.nspname, l.relname),
                    'filenode', pg_relation_filenode(l.oid)::text,
                    'blocks', CASE WHEN l.relkind = 'r' THEN pg_relation_size(l.oid) / current_setting('block_size')::bigint ELSE 0 END,
                    'persistence', l.relpersistence::text,
                    'kind', l.relkind::text,
                    'triggers', tr.list,
                    'captured', tr.whole)
                    ORDER BY l.oid)
                  FROM (SELECT p.relid FROM pg_partition_tree(w.oid) p WHERE p.isleaf
                        UNION ALL SELECT w.oid WHERE w.relkind <> 'p') lf
                  JOIN pg_class l ON l.oid = lf.relid JOIN pg_namespace n ON n.oid = l.relnamespace
                 CROSS JOIN LATERAL (
                    -- A clone of a partitioned table's trigger is an internal one before
                    -- PostgreSQL 15, so the name tells ours: with the table's number, which version 0.1 did not write.
                    SELECT string_agg(concat_ws(' ', t.tgname, t.oid, t.xmin, t.tgenabled), ', ' ORDER BY t.tgname) AS list,
                           count(*) FILTER (
                               WHERE substr(t.tgname, length($3) + 1) ~ '^[iudt](_[0-9]+)?$' AND t.tgenabled = 'A'
                                 AND (substr(t.tgname, length($3) + 1, 1) <> 't' AND w.relkind = 'p') = (t.tgparentid <> 0)
                                 AND EXISTS (SELECT 1 FROM pg_proc f
                                              WHERE f.oid = t.tgfoid AND f.proname = w.function
                                                AND f.pronamespace = to_regnamespace('shardmaster_agent'))) = 4 AS whole
                      FROM pg_trigger t
                     WHERE t.tgrelid = l.oid AND starts_with(t.tgname, $3)) tr),
            'parents', (
                SELECT json_agg(format('%I.%I', n.nspname, l.relname) ORDER BY p.level, l.oid)
                  FROM pg_partition_tree(w.oid) p
                  JOIN pg_class l ON l.oid = p.relid JOIN pg_namespace n ON n.oid = l.relnamespace
                 WHERE NOT p.isleaf),
            -- What would change rows that are copied, or keep them from what a table promises.
            'hazards', (
                SELECT string_agg(h.text, ', ' ORDER BY h.text COLLATE "C")
                  FROM (SELECT w.oid AS relid UNION SELECT p.relid FROM pg_partition_tree(w.oid) p) tree
                 CROSS JOIN LATERAL (
                    SELECT format('rule %I', r.rulename) FROM pg_rewrite r WHERE r.ev_class = tree.relid
                    UNION ALL
                    SELECT format('trigger %I, enabled ALWAYS or REPLICA', t.tgname) FROM pg_trigger t
                     WHERE t.tgrelid = tree.relid AND t.tgenabled IN ('A', 'R')
                       AND NOT EXISTS (SELECT 1 FROM pg_proc f
                                        WHERE f.oid = t.tgfoid AND f.pronamespace = to_regnamespace('shardmaster_agent'))
                    UNION ALL
                    SELECT 'not a logged table' FROM pg_class l
                     WHERE l.oid = tree.relid AND (l.relpersistence <> 'p' OR l.relkind NOT IN ('r', 'p'))
                    UNION ALL
                    SELECT format('%s inherits from it', i.inhrelid::regclass) FROM pg_inherits i
                     WHERE i.inhparent = tree.relid AND w.relkind = 'r'
                    UNION ALL
                    SELECT format('constraint %I, deferrable without the shard-by column', k.conname) FROM pg_constraint k
                     WHERE k.conrelid = tree.relid AND k.contype IN ('p', 'u', 'x') AND k.condeferrable AND k.conparentid = 0
                       AND NOT EXISTS (SELECT 1 FROM unnest(k.conkey, k.conexclop) AS c (attnum, operator)
                                         JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = c.attnum
                                         LEFT JOIN pg_operator o ON o.oid = c.operator
                                        WHERE a.attname = w.shard_by AND coalesce(o.oprname, '=') = '=')
                    UNION ALL
                    SELECT 'a subscription that writes to it' FROM pg_subscription_rel s WHERE s.srrelid = tree.relid
                    UNION
                    -- What is deleted here is deleted without asking who references it. Found by the
                    -- triggers that such a key has: there is no index over what it references.
                    SELECT format('a foreign key from %s', f.conrelid::regclass)
                      FROM pg_trigger g JOIN pg_constraint f ON f.oid = g.tgconstraint
                     WHERE g.tgrelid = tree.relid AND g.tgconstrrelid <> 0 AND f.confrelid = tree.relid
                       AND NOT EXISTS (SELECT 1 FROM wanted o
                                        WHERE o.oid IN (f.conrelid, pg_partition_root(f.conrelid)))
                 ) AS h (text)),
            -- By what two rows exclude each other.
            'promises', (
                SELECT json_agg(json_build_object(
                    'name', k.conname,
                    'says', CASE k.contype
                        WHEN 'x' THEN regexp_replace(pg_get_constraintdef(k.oid), ' DEFERRABLE.*$', '')
                        ELSE (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attname) FROM pg_attribute a
                               WHERE a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey))
                             || coalesce(to_jsonb(i) ->> 'indnullsnotdistinct', 'false')
                        END || CASE WHEN k.conrelid <> w.oid THEN ' of partition ' || k.conrelid::regclass ELSE '' END,
                    'columns', (
                        -- Those of expressions and of a predicate are the index's own.
                        SELECT coalesce(json_agg(a.attname), '[]') FROM pg_attribute a
                         WHERE a.attrelid = k.conrelid AND a.attnum > 0
                           AND (a.attnum = ANY (k.conkey)
                                OR EXISTS (SELECT 1 FROM pg_depend d
                                            WHERE d.classid = 'pg_class'::regclass AND d.objid = k.conindid
                                              AND d.refclassid = 'pg_class'::regclass AND d.refobjid = k.conrelid
                                              AND d.refobjsubid = a.attnum))),
                    'is_deferrable', k.condeferrable) ORDER BY k.conname)
                  FROM (SELECT w.oid AS relid UNION SELECT p.relid FROM pg_partition_tree(w.oid) p) tree
                  JOIN pg_constraint k ON k.conrelid = tree.relid AND k.contype IN ('p', 'u', 'x') AND k.conparentid = 0
                  JOIN pg_index i ON i.indexrelid = k.conindid),
            'heir', (
                SELECT min(i.inhrelid::regclass::text) FROM pg_inherits i
                 WHERE i.inhparent = w.oid AND w.relkind = 'r'))
            ORDER BY w.ord), '[]')
          FROM wanted w))

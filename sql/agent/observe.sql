-- What a step must know of a shard, in the step's snapshot: who the server is and
-- what its tables look like. $1: schemas, $2: tables, $3: prefix of our triggers, $4: the
-- trigger function of each table.
SELECT json_build_object(
    'snapshot', pg_current_snapshot()::text,
    'server', (SELECT system_identifier::text FROM pg_control_system())
              || ':' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8),
    'tables', (
        SELECT json_agg(json_build_object(
            'oid', c.oid::text,
            'name', format('%I.%I', w.nsp, w.rel),
            'kind', c.relkind::text,
            'columns', (
                SELECT json_agg(json_build_object(
                    'name', a.attname,
                    'type', format_type(a.atttypid, a.atttypmod),
                    -- -1 and not NULL, which would call char(n) by the name of char(1)
                    'base', format_type(a.atttypid, -1),
                    'collation', CASE WHEN a.attcollation <> ty.typcollation
                                      THEN a.attcollation::regcollation::text END,
                    'binary', a.atttypid < 16384 AND (
                        a.atttypid::regtype::text IN (
                            'boolean', 'smallint', 'integer', 'bigint', 'real', 'double precision', 'numeric',
                            'text', 'character varying', 'character', 'bytea', 'uuid', 'date',
                            'time without time zone', 'time with time zone', 'timestamp without time zone',
                            'timestamp with time zone', 'interval', 'json', 'jsonb', 'inet', 'cidr', 'macaddr',
                            'boolean[]', 'smallint[]', 'integer[]', 'bigint[]', 'real[]', 'double precision[]',
                            'numeric[]', 'text[]', 'character varying[]', 'uuid[]', 'date[]',
                            'timestamp without time zone[]', 'timestamp with time zone[]', 'jsonb[]', 'bytea[]')),
                    'not_null', a.attnotnull,
                    'has_default', a.attgenerated = '' AND (a.atthasdef OR a.attidentity <> ''),
                    'generated', a.attgenerated <> '') ORDER BY a.attnum)
                  FROM pg_attribute a JOIN pg_type ty ON ty.oid = a.atttypid
                 WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
            'key', (
                SELECT json_agg(a.attname ORDER BY k.ord)
                  FROM pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, ord), pg_attribute a
                 WHERE i.indrelid = c.oid AND i.indisprimary
                   AND a.attrelid = c.oid AND a.attnum = k.attnum),
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
                  FROM pg_class l JOIN pg_namespace n ON n.oid = l.relnamespace
                 CROSS JOIN LATERAL (
                    -- A clone of a partitioned table's trigger is an internal one before
                    -- PostgreSQL 15, so the name tells ours.
                    SELECT string_agg(concat_ws(' ', t.tgname, t.oid, t.xmin, t.tgenabled), ', ' ORDER BY t.tgname) AS list,
                           count(*) FILTER (
                               WHERE t.tgname IN ($3 || 'i', $3 || 'u', $3 || 'd', $3 || 't') AND t.tgenabled = 'A'
                                 AND (t.tgname <> $3 || 't' AND c.relkind = 'p') = (t.tgparentid <> 0)
                                 AND EXISTS (SELECT 1 FROM pg_proc f
                                              WHERE f.oid = t.tgfoid AND f.proname = w.function
                                                AND f.pronamespace = to_regnamespace('shardmaster_agent'))) = 4 AS whole
                      FROM pg_trigger t
                     WHERE t.tgrelid = l.oid AND starts_with(t.tgname, $3)) tr
                 WHERE l.oid IN (SELECT p.relid FROM pg_partition_tree(c.oid) p WHERE p.isleaf
                                 UNION ALL SELECT c.oid WHERE c.relkind <> 'p')),
            'parents', (
                SELECT json_agg(format('%I.%I', n.nspname, l.relname) ORDER BY p.level, l.oid)
                  FROM pg_partition_tree(c.oid) p
                  JOIN pg_class l ON l.oid = p.relid JOIN pg_namespace n ON n.oid = l.relnamespace
                 WHERE NOT p.isleaf),
            'heir', (
                SELECT min(i.inhrelid::regclass::text) FROM pg_inherits i
                 WHERE i.inhparent = c.oid AND c.relkind = 'r'))
            ORDER BY w.ord)
          FROM unnest($1::text[], $2::text[], $4::text[]) WITH ORDINALITY AS w (nsp, rel, function, ord)
          LEFT JOIN (pg_class c JOIN pg_namespace cn ON cn.oid = c.relnamespace)
                 ON cn.nspname = w.nsp AND c.relname = w.rel))

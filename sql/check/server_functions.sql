-- Columns that are filled with what this server alone counts: its transactions, its log. $1: tables. Position of the table, counted
-- from 1, column, what fills it. By a default, that of a domain, or a trigger, by its own text or by that of a function of
-- somebody's which a default calls, or that a trigger is. Where a trigger's text writes into another of the tables, the
-- column is not known.
WITH moving AS (
    SELECT w.position, m.relation, c.relname
      FROM unnest($1::oid[]) WITH ORDINALITY w (relation, position)
     CROSS JOIN LATERAL (SELECT w.relation UNION SELECT p.relid FROM pg_partition_tree(w.relation) p) m (relation)
      JOIN pg_class c ON c.oid = w.relation
), counted (name) AS (
    -- Functions, numbers of the catalog, and columns that the server fills.
    VALUES ('(?:\m(?:txid_current|txid_current_if_assigned|txid_current_snapshot|pg_current_xact_id|pg_current_xact_id_if_assigned|pg_current_snapshot|pg_current_wal_lsn|pg_current_wal_insert_lsn|pg_current_wal_flush_lsn)\M\s*\('
            || '|::reg(?:class|type|proc|role|namespace)\)*::oid|\m(?:tg_relid|xmin|xmax|cmin|cmax|ctid|tableoid)\M)')
), defaults AS (
    SELECT m.position, a.attname, format('its default calls %s', trim(substring(e.text, t.name), ' (')) AS what
      FROM moving m CROSS JOIN counted t
      JOIN pg_attrdef d ON d.adrelid = m.relation JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
     CROSS JOIN LATERAL (SELECT pg_get_expr(d.adbin, d.adrelid)) e (text)
     WHERE a.attgenerated = '' AND e.text ~ t.name
    UNION
    SELECT m.position, a.attname, format('its default calls function %s, which calls %s', p.oid::regprocedure, trim(substring(b.text, t.name), ' ('))
      FROM moving m CROSS JOIN counted t
      JOIN pg_attrdef d ON d.adrelid = m.relation JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
      JOIN pg_depend x ON x.classid = 'pg_attrdef'::regclass AND x.objid = d.oid AND x.refclassid = 'pg_proc'::regclass
      JOIN pg_proc p ON p.oid = x.refobjid AND p.oid >= 16384
     CROSS JOIN LATERAL (SELECT left(CASE WHEN p.prosrc = '' THEN pg_get_functiondef(p.oid) ELSE p.prosrc END, 200000)) b (text)
     WHERE a.attgenerated = '' AND p.prokind IN ('f', 'p') AND b.text ~* t.name
    UNION
    SELECT m.position, a.attname, format('the default of its type calls %s', trim(substring(o.text, t.name), ' ('))
      FROM moving m CROSS JOIN counted t
      JOIN pg_attribute a ON a.attrelid = m.relation AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
     CROSS JOIN LATERAL (
        WITH RECURSIVE domain (oid, text, base) AS (
            SELECT y.oid, y.typdefault, y.typbasetype FROM pg_type y WHERE y.oid = a.atttypid AND y.typtype = 'd'
            UNION
            SELECT y.oid, y.typdefault, y.typbasetype FROM domain o JOIN pg_type y ON y.oid = o.base WHERE y.typtype = 'd'
        )
        SELECT text FROM domain) o
     WHERE o.text ~ t.name
), triggers AS (
    SELECT DISTINCT m.position, p.oid, b.text, t.name AS counted
      FROM moving m CROSS JOIN counted t
      JOIN pg_trigger g ON g.tgrelid = m.relation AND NOT g.tgisinternal AND g.tgenabled <> 'D'
      JOIN pg_proc p ON p.oid = g.tgfoid AND p.oid >= 16384 AND p.pronamespace IS DISTINCT FROM to_regnamespace('shardmaster_agent')
      JOIN pg_language l ON l.oid = p.prolang AND l.lanname NOT IN ('internal', 'c')
     CROSS JOIN LATERAL (SELECT left(p.prosrc, 200000)) b (text)
     WHERE b.text ~* t.name
), assigned AS (
    SELECT g.position, a.attname, format('trigger function %s fills it with %s', g.oid::regprocedure, trim(substring(g.text, g.counted), ' (')) AS what
      FROM triggers g JOIN moving m ON m.position = g.position
     CROSS JOIN LATERAL (
        SELECT r[1] FROM regexp_matches(g.text, '\mnew\s*\.\s*"?(\w+)"?\s*:?=[^;]*' || g.counted, 'gi') r
        UNION
        SELECT r[1] FROM regexp_matches(g.text, g.counted || '[^;]*\minto\s+(?:strict\s+)?new\s*\.\s*"?(\w+)', 'gi') r) f (name)
      JOIN pg_attribute a ON a.attrelid = m.relation AND a.attnum > 0 AND NOT a.attisdropped AND lower(a.attname) = lower(f.name)
), written AS (
    SELECT DISTINCT o.position, NULL::name, format('trigger function %s writes into the table, and calls %s', g.oid::regprocedure, trim(substring(g.text, g.counted), ' ('))
      FROM triggers g JOIN moving o ON g.text ~* ('\m(?:into|update)\s+(?:only\s+)?(?:"?\w+"?\s*\.\s*)?"?' || regexp_replace(o.relname, '(\W)', '\\\1', 'g') || '"?(?!\w)')
)
SELECT * FROM defaults UNION SELECT * FROM assigned UNION SELECT * FROM written ORDER BY 1, 2, 3

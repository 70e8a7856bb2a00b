-- docs/reference/functions.md: every function that somebody may call, as a created extension has it. One that has
-- no subject below, no level or no comment, is an error. Run by scripts/docs.sh, with psql -At.

CREATE TEMPORARY TABLE subject (position int, title text, pages text, pattern text);
INSERT INTO subject VALUES
    (1, 'Shards', '[Roles and rights](../operate/roles-and-rights.md), [credentials](../operate/credentials.md)',
     '^shard_(add|add_many|set_\w+|drop|topology|status|check|credential\w*|credentials|keychain\w*|services|adopt|cleanup|report|top)$'),
    (2, 'Rights', '[Security](security.md)', '^shard_(grant|revoke|(dis)?trust_owner|trusted_owners)$'),
    (3, 'Keyspaces and tables', '[Concepts](../start/concepts.md), [copy a schema](../guides/copy-a-schema.md)',
     '^shard_(keyspace\w*|table_\w+|tables|sequence_\w+|sequences|schema_\w+|import|survey\w*|adopt_database)$'),
    (4, 'Routes', '[Write a client](../guides/write-a-client.md), [gateways](../guides/gateways.md)',
     '^shard_(of|for|route|route_\w+|entries|routing_\w+|assign\w*|unassign|join_ranges|range_midpoint|gateway_config|unassigned)$'),
    (5, 'Splits', '[Move a tenant](../guides/move-a-tenant.md), [phases](phases.md)', '^shard_(move|split_\w+|splits)$'),
    (6, 'Guards and rows that are misplaced', '[Key guards](../guides/key-guards.md), [misplaced rows](../guides/misplaced-rows.md)',
     '^shard_(guard\w*|misplaced\w*)$'),
    (7, 'Placement', '[Place tenants](../guides/place-tenants.md)',
     '^shard_(\w+_slot|expire_leases|capacity|tenant_usage|place_tenant)$'),
    (8, 'Identifiers', '[Identifiers](../guides/identifiers.md)', '^shard_(snowflake_\w+|sequences_spread)$'),
    (9, 'Queries and commands on all shards', '[Query all shards](../guides/query-all-shards.md), [run DDL everywhere](../guides/run-ddl-everywhere.md)',
     '^shard_(query\w*|execut\w+|logins?|login_\w+)$'),
    (10, 'Lookups', '[Lookup indexes](../guides/lookup-indexes.md)', '^shard_lookup\w*$'),
    (11, 'Reference tables', '[Reference tables](../guides/reference-tables.md)', '^shard_reference_\w+$'),
    (12, 'Jobs', '[Derived columns](../guides/derived-columns.md)', '^shard_jobs?(_\w+)?$');
-- Quotas are of placement, whatever their name begins with.
UPDATE subject SET pattern = replace(pattern, 'set_\w+', 'set_(?!quota)\w+') WHERE position = 1;
UPDATE subject SET pattern = replace(pattern, 'capacity|', 'capacity|set_quota|') WHERE position = 7;

CREATE TEMPORARY VIEW called AS
SELECT p.oid, p.proname::text AS name, p.prokind, p.proretset, p.prorettype, p.proargnames, p.proargmodes,
       coalesce(p.proallargtypes, p.proargtypes::oid[]) AS types, s.position, s.title,
       CASE WHEN has_function_privilege('public', p.oid, 'EXECUTE') THEN 'everybody' ELSE l.level END AS level,
       obj_description(p.oid, 'pg_proc') AS said
  FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
  JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
  LEFT JOIN subject s ON p.proname ~ s.pattern
  LEFT JOIN shardmaster.routine_levels() l ON l.routine = p.proname
 WHERE e.extname = 'shardmaster' AND d.deptype = 'e' AND p.pronamespace <> 'shardmaster'::regnamespace;

DO $$
DECLARE bad text;
BEGIN
    SELECT string_agg(name, ', ') INTO bad FROM called WHERE title IS NULL OR said IS NULL;
    IF bad IS NOT NULL THEN RAISE 'without a subject in scripts/functions.sql, or a COMMENT: %', bad; END IF;
    SELECT string_agg(name, ', ') INTO bad FROM (SELECT name FROM called GROUP BY oid, name HAVING count(*) > 1) twice;
    IF bad IS NOT NULL THEN RAISE 'with two subjects in scripts/functions.sql, or two levels: %', bad; END IF;
    SELECT string_agg(name, ', ') INTO bad FROM called WHERE said !~ 'Example: |^deprecated: |^as shard_';
    IF bad IS NOT NULL THEN RAISE 'without "Example: " in the COMMENT: %', bad; END IF;
    -- An example of a SELECT is planned, so that its calls, arguments and types are those that there are.
    FOR bad IN SELECT rtrim(split_part(split_part(said, 'Example: ', 2), '. ', 1), '.') FROM called WHERE said ~ 'Example: SELECT ' LOOP
        IF bad !~ 'FROM tenants' THEN EXECUTE 'EXPLAIN ' || bad; END IF;
    END LOOP;
END $$;

-- One argument or column each, with its default.
CREATE TEMPORARY VIEW argument AS
SELECT c.oid, a.number, a.mode IN ('t', 'o') AS is_column,
       concat_ws(' ', CASE a.mode WHEN 'v' THEN 'VARIADIC' WHEN 'b' THEN 'INOUT' END, quote_ident(a.name),
                 format_type(a.type, NULL),
                 CASE WHEN a.mode IN ('i', 'b', 'v') THEN 'DEFAULT ' END || regexp_replace(pg_get_function_arg_default(c.oid, a.input), $r$^('[^']*'|NULL)::[a-z ]+$$r$, '\1')) AS text
  FROM called c,
       LATERAL (SELECT u.number, u.type, u.name, coalesce(u.mode, 'i') AS mode,
                       count(*) FILTER (WHERE coalesce(u.mode, 'i') IN ('i', 'b', 'v')) OVER (ORDER BY u.number)::int AS input
                  FROM ROWS FROM (unnest(c.types), unnest(c.proargnames), unnest(c.proargmodes)) WITH ORDINALITY AS u (type, name, mode, number)) a
UNION ALL
-- Of a named type of rows its columns.
SELECT c.oid, 1000 + a.attnum, true, quote_ident(a.attname) || ' ' || format_type(a.atttypid, a.atttypmod)
  FROM called c
  JOIN pg_type t ON t.oid = c.prorettype AND t.typtype = 'c'
  JOIN pg_attribute a ON a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped;

-- On a line of its own each where one line would be long.
CREATE FUNCTION pg_temp.listed(items text[]) RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN length(array_to_string(items, ', ')) <= 80 THEN '(' || array_to_string(items, ', ') || ')'
                ELSE E'(\n    ' || array_to_string(items, E',\n    ') || ')' END
$$;

CREATE TEMPORARY VIEW signature AS
SELECT c.oid, c.name || pg_temp.listed(coalesce(array_agg(a.text ORDER BY a.number) FILTER (WHERE NOT a.is_column), '{}')) ||
       CASE WHEN c.prokind = 'p' THEN ''
            WHEN count(*) FILTER (WHERE a.is_column) > 0 AND c.proretset
                THEN E'\n  RETURNS TABLE ' || pg_temp.listed(array_agg(a.text ORDER BY a.number) FILTER (WHERE a.is_column))
            WHEN count(*) FILTER (WHERE a.is_column) > 0
                THEN E'\n  RETURNS ' || pg_temp.listed(array_agg(a.text ORDER BY a.number) FILTER (WHERE a.is_column))
            ELSE E'\n  RETURNS ' || CASE WHEN c.proretset THEN 'SETOF ' ELSE '' END || format_type(c.prorettype, NULL) END AS text
  FROM called c LEFT JOIN argument a USING (oid)
 GROUP BY c.oid, c.name, c.prokind, c.proretset, c.prorettype;

-- A comment as a paragraph: nothing in it is markup, and what it calls is linked to.
CREATE FUNCTION pg_temp.paragraph(said text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE called record;
BEGIN
    said := regexp_replace(regexp_replace(said, '([\\*<>\[\]`|])', '\\\1', 'g'), '\s*\n\s*', ' ', 'g');
    said := upper(left(said, 1)) || substr(said, 2) || CASE WHEN said ~ '[.!?]$' THEN '' ELSE '.' END;
    FOR called IN SELECT DISTINCT name FROM called LOOP
        said := regexp_replace(said, '(?<![\w`])' || called.name || '\(\)', '[`' || called.name || '()`](#' || called.name || ')', 'g');
    END LOOP;
    RETURN said;
END $$;

-- A comment as Markdown: what it says of an argument or a column, "name: ..", and of a SQLSTATE are items of lists.
CREATE FUNCTION pg_temp.described(said text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    state CONSTANT text := '(?:[0-9][0-9A-Z]{4}|08xxx|SM[0-9]{3})';
    sentence text;
    piece    text;
    was      text := '';
    kind     text;
    made     text := '';
BEGIN
    FOREACH sentence IN ARRAY regexp_split_to_array(regexp_replace(said, '\s*\n\s*', ' ', 'g'), '(?<=[a-z0-9)][.])\s+(?=[A-Za-z0-9])') LOOP
        FOREACH piece IN ARRAY CASE WHEN sentence ~ ('^' || state || ': ') THEN regexp_split_to_array(sentence, '; (?=' || state || ': )')
                                    WHEN sentence ~ '^[a-z][a-z_]*: ' THEN regexp_split_to_array(sentence, '; (?=[a-z][a-z_]*: )')
                                    ELSE ARRAY[sentence] END LOOP
            kind := CASE WHEN piece ~ ('^' || state || ': ') THEN 'error' WHEN piece ~ '^[a-z][a-z_]*: ' THEN 'item' ELSE 'text' END;
            made := made || CASE WHEN made = '' THEN '' WHEN kind = 'text' AND was = 'text' THEN ' ' WHEN kind = was THEN E'\n' ELSE E'\n\n' END
                         || CASE WHEN kind = 'text' THEN pg_temp.paragraph(piece)
                                 ELSE regexp_replace(pg_temp.paragraph('- ' || piece), '^- ([^:]*): ', '- `\1`: ') END;
            was := kind;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;

SELECT text FROM (
    SELECT 0 AS position, '' AS name, 0 AS part, '' AS signature, $$# Functions

Every function of the extension that somebody may call, with its COMMENT: `\df+ shard_*` shows the same in psql. This
page is made from a created extension, and a test fails where it says something else.

Each names the level that may call it: `SELECT shard_grant(role, level)` gives a level, and one brings those below it, as
[security.md](security.md) tells: an operator may what clients and monitors may, an admin what operators may. The
extension's owner and superusers may call all of them. An argument with a DEFAULT can be left out; NULL for one without
is an error.
$$ AS text
    UNION ALL
    SELECT position, '', 0, '', format(E'## %s\n\nMore about them: %s.\n\n%s.\n', title, pages,
           (SELECT string_agg(format('[%s](#%1$s)', name), ', ' ORDER BY name COLLATE "C")
              FROM (SELECT DISTINCT name FROM called c WHERE c.position = s.position) names))
      FROM subject s
    UNION ALL
    SELECT DISTINCT position, name, 0, '', format(E'### %s\n', name) FROM called
    UNION ALL
    SELECT position, name, 1, s.text,
           format(E'```text\n%s%s\n```\n\n%s\n\nLevel: %s.\n', CASE WHEN prokind = 'p' THEN 'CALL ' ELSE '' END, s.text,
                  pg_temp.described(said), coalesce(level, 'only the extension''s owner'))
      FROM called JOIN signature s USING (oid)
) pages ORDER BY position, name COLLATE "C", part, signature COLLATE "C";

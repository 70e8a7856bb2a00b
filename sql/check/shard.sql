-- What a shard is to whoever comes as the mover. $1: the schema of its tables. One row for each
-- finding.
SELECT 'role', true, format('%I in database %I', current_user, current_database()), NULL
UNION ALL
SELECT 'primary', NOT pg_is_in_recovery(),
       CASE WHEN pg_is_in_recovery() THEN 'it is a standby' ELSE 'it accepts writes' END,
       'Name the primary, or all hosts with target_session_attrs=read-write.'
UNION ALL
SELECT 'encryption', s.ssl OR inet_server_addr() IS NULL OR inet_server_addr() << inet '127.0.0.0/8' OR inet_server_addr() = inet '::1',
       CASE WHEN s.ssl THEN format('%s, %s', s.version, s.cipher) ELSE 'none' END,
       'Set sslmode=verify-full and sslrootcert, and allow only hostssl in pg_hba.conf.'
  FROM pg_stat_ssl s WHERE s.pid = pg_backend_pid()
UNION ALL
SELECT 'schema', coalesce(has_schema_privilege(to_regnamespace(quote_ident($1))::oid, 'USAGE'), false),
       CASE WHEN to_regnamespace(quote_ident($1)) IS NULL THEN format('there is no schema %I', $1)
            ELSE format('schema %I, its tables: %s', $1, (SELECT count(*) FROM pg_class c
                         WHERE c.relnamespace = to_regnamespace(quote_ident($1)) AND c.relkind IN ('r', 'p') AND NOT c.relispartition)) END,
       format('CREATE SCHEMA %I, or GRANT USAGE ON SCHEMA %I TO %I', $1, $1, current_user)
UNION ALL
SELECT 'durability', NOT s.off, coalesce(s.names || ' is off', 'fsync and full_page_writes are on'),
       'Set it on. A shard must not lose in a crash what it has committed.'
  FROM (SELECT count(*) > 0, string_agg(name, ', ') FROM pg_settings
         WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off') s (off, names)
UNION ALL
SELECT 'size', true, format('the database has %s', pg_size_pretty(pg_database_size(current_database()))),
       'The free space of its disk cannot be asked with SQL.'
UNION ALL
SELECT 'agent', true,
       CASE WHEN to_regnamespace('shardmaster_agent') IS NULL THEN 'nothing is installed'
            ELSE format('of splits and redirects, tables: %s, triggers: %s',
                        (SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('shardmaster_agent') AND relkind = 'r'),
                        (SELECT count(*) FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid
                          WHERE f.pronamespace = to_regnamespace('shardmaster_agent'))) END,
       NULL

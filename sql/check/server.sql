-- What a server and the mover's role on it must be. One row for each finding.
SELECT 'version', current_setting('server_version_num')::int >= 130000,
       'PostgreSQL ' || current_setting('server_version'), 'PostgreSQL 13 is the oldest that can be a shard.'
UNION ALL
SELECT 'right to create', has_database_privilege(current_database(), 'CREATE')
                          AND has_database_privilege(current_database(), 'TEMP'),
       format('role %I, database %I', current_user, current_database()),
       format('GRANT CREATE, TEMPORARY ON DATABASE %I TO %I', current_database(), current_user)
UNION ALL
SELECT 'right to see sessions', true,
       CASE WHEN pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') THEN format('role %I sees which sessions delay a fence', current_user)
            ELSE format('role %I does not see how long other sessions are open, so that an old writer is not noticed before the fence', current_user) END,
       format('GRANT pg_read_all_stats TO %I', current_user)
UNION ALL
SELECT 'damaged pages', false, format('%s is on: rows of damaged pages would be left out', s.name),
       'Set it off. Damaged pages must stop a copy.'
  FROM (VALUES ('zero_damaged_pages'), ('ignore_checksum_failure')) AS s (name)
 WHERE current_setting(s.name)::boolean
UNION ALL
SELECT 'connections', s.free >= 6, format('%s connections are free', s.free), 'A split opens up to five sessions on a server. Raise max_connections.'
  FROM (SELECT current_setting('max_connections')::int - count(*) AS free
          FROM pg_stat_activity WHERE backend_type = 'client backend') s
UNION ALL
SELECT 'prepared transactions', count(*) = 0,
       CASE count(*) WHEN 0 THEN 'none' ELSE string_agg(format('%L since %s', gid, prepared), ', ') END,
       'Commit or roll back old prepared transactions. They delay triggers and the cutover.'
  FROM pg_prepared_xacts WHERE database = current_database() AND prepared < clock_timestamp() - interval '1 minute'
UNION ALL
SELECT 'old transactions', true,
       CASE count(*) WHEN 0 THEN 'none' ELSE string_agg(format('pid %s since %s', pid, xact_start), ', ') END,
       'A split waits for open transactions that have written to a moving table.'
  FROM pg_stat_activity
 WHERE datname = current_database() AND xact_start < clock_timestamp() - interval '1 minute' AND pid <> pg_backend_pid()
UNION ALL
SELECT 'standbys', true,
       CASE WHEN current_setting('synchronous_standby_names') = '' AND EXISTS (SELECT 1 FROM pg_stat_replication)
            THEN 'standbys are asynchronous: a failover loses the changes that they have not received, and the copy starts again'
            ELSE 'synchronous, or none' END,
       'Set synchronous_standby_names if a failover must not lose a write.'

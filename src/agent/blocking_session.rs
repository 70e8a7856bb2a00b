//! Blocking sessions, in words for an operator: their shard, role, begin and activity.

/// SQL expression over `l` of pg_locks and `a` of pg_stat_activity. Of a statement it shows only the first word, and
/// only if that is a command of SQL: the rest may contain secrets. A prepared transaction keeps the virtual
/// transaction of the session that made it, without its pid; its number is locked under the same one.
pub const SESSION: &str = r"CASE WHEN l.pid IS NULL THEN COALESCE((
             SELECT pg_catalog.format('prepared transaction %L, open for %s s', q.gid,
                        pg_catalog.round(EXTRACT(epoch FROM pg_catalog.clock_timestamp() - q.prepared)))
               FROM pg_catalog.pg_locks x JOIN pg_catalog.pg_prepared_xacts q ON q.transaction = x.transactionid
              WHERE x.pid IS NULL AND x.locktype = 'transactionid' AND x.virtualtransaction = l.virtualtransaction LIMIT 1),
             'a prepared transaction')
         ELSE pg_catalog.format('pid %s (%s)', l.pid, pg_catalog.concat_ws(', ', 'user ' || a.usename,
                  CASE WHEN a.backend_type LIKE 'shardmaster %' THEN a.backend_type
                       ELSE 'application ' || NULLIF(a.application_name, '') END,
                  CASE a.state WHEN 'active' THEN 'at ' WHEN 'idle in transaction' THEN 'idle after ' END
                  || pg_catalog.substring(pg_catalog.upper(pg_catalog.ltrim(a.query, E' \t\r\n(')),
                       '^(?:SELECT|INSERT|UPDATE|DELETE|MERGE|COPY|LOCK|TRUNCATE|VACUUM|ANALYZE|ALTER|CREATE|DROP|REINDEX|CLUSTER|REFRESH|FETCH|CALL|DO|EXECUTE|WITH|BEGIN|SAVEPOINT|SET|SHOW|COMMENT|GRANT|REVOKE)\M')))
         END";

/// SQL expression: how long its transaction is open, or '' if that is not known.
pub const OPEN_FOR: &str = "COALESCE(', open for ' || pg_catalog.round(EXTRACT(epoch FROM
                  pg_catalog.clock_timestamp() - a.xact_start)) || ' s', '')";

-- Transactions of a snapshot, $1, that still run in this database, and some of them by name. No row: there is none.
WITH earlier AS (
    SELECT x.xid::xid FROM pg_snapshot_xip($1::pg_snapshot) AS x (xid)
     WHERE x.xid IN (SELECT * FROM pg_snapshot_xip(pg_current_snapshot()))
), named AS (
    SELECT e.xid, min(a.pid) AS pid, min(a.usename) AS usename, min(a.application_name) AS application, min(p.gid) AS gid,
           bool_or(coalesce(a.datname, p.database) <> current_database()) IS TRUE AS is_elsewhere
      FROM earlier e
      LEFT JOIN pg_locks l ON l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.transactionid = e.xid
      LEFT JOIN pg_stat_activity a ON a.pid = l.pid
      LEFT JOIN pg_prepared_xacts p ON p.transaction = e.xid
     GROUP BY e.xid
)
SELECT count(*), string_agg(coalesce(format('pid %s (%s)', n.pid, concat_ws(', ', n.usename, nullif(n.application, ''))),
                                     format('prepared transaction "%s"', n.gid)), ', ' ORDER BY n.pid, n.gid) FILTER (WHERE n.number <= 5)
  FROM (SELECT f.*, row_number() OVER (ORDER BY f.pid, f.gid) AS number FROM named f WHERE NOT f.is_elsewhere) n
HAVING count(*) > 0

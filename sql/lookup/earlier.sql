-- Transactions of a snapshot, $1, that have written to a table, $2, or to a partition of it, and still run: how many, and some
-- of them by name. Whoever writes keeps a lock on the table to its end. No row: there is none.
WITH tree (oid) AS (
    SELECT to_regclass($2)::oid UNION SELECT p.relid FROM pg_partition_tree(to_regclass($2)) p
), writer AS (
    SELECT l.virtualtransaction FROM pg_locks l
     WHERE l.locktype = 'relation' AND l.granted AND l.relation IN (SELECT t.oid FROM tree t)
       AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
       AND l.mode NOT IN ('AccessShareLock', 'RowShareLock')
), named AS (
    SELECT DISTINCT a.pid, a.usename, a.application_name, p.gid, x.xid
      FROM pg_snapshot_xip($1::pg_snapshot) AS x (xid)
      JOIN pg_locks l ON l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.transactionid = x.xid::xid
      LEFT JOIN pg_stat_activity a ON a.pid = l.pid
      LEFT JOIN pg_prepared_xacts p ON p.transaction = x.xid::xid
     WHERE l.virtualtransaction IN (SELECT w.virtualtransaction FROM writer w)
)
SELECT count(*), string_agg(CASE WHEN n.pid IS NULL THEN format('prepared transaction "%s"', n.gid)
                                 ELSE format('pid %s (%s)', n.pid, concat_ws(', ', n.usename, nullif(n.application_name, ''))) END, ', ' ORDER BY n.pid, n.gid) FILTER (WHERE n.number <= 5)
  FROM (SELECT f.*, row_number() OVER (ORDER BY f.pid, f.gid) AS number FROM named f) n
HAVING count(*) > 0

-- Tables that have triggers of a set, whose names begin with $1: schemas, names, and, of a copy, its origin.
SELECT left(n.nspname, 200), left(c.relname, 200),
       max(CASE WHEN t.tgtype & 1 = 0 THEN left(convert_from(
           substring(t.tgargs FROM position(decode('00', 'hex') IN t.tgargs) + 1
                              FOR octet_length(t.tgargs) - position(decode('00', 'hex') IN t.tgargs) - 1), getdatabaseencoding()), 200) END)
  FROM pg_trigger t
  JOIN pg_class c ON c.oid = t.tgrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_proc f ON f.oid = t.tgfoid AND f.pronamespace = to_regnamespace('shardmaster_agent')
 WHERE starts_with(t.tgname, $1)
 GROUP BY n.nspname, c.relname
 ORDER BY n.nspname, c.relname

-- Sets whose triggers tables have: the table's place in the lists, the set's token, and, of a copy, its origin.
-- $1: schemas, $2: names.
SELECT w.ord, r.token,
       -- The second argument of a guard; each ends with a zero byte.
       max(CASE WHEN t.tgtype & 1 = 0 THEN left(convert_from(
           substring(t.tgargs FROM position(decode('00', 'hex') IN t.tgargs) + 1
                              FOR octet_length(t.tgargs) - position(decode('00', 'hex') IN t.tgargs) - 1), getdatabaseencoding()), 200) END)
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (nsp, rel, ord)
  JOIN pg_namespace n ON n.nspname = w.nsp
  JOIN pg_class c ON c.relname = w.rel AND c.relnamespace = n.oid
  JOIN pg_trigger t ON t.tgrelid = c.oid AND starts_with(t.tgname, '00_shardmaster_reference_')
  JOIN pg_proc f ON f.oid = t.tgfoid AND f.pronamespace = to_regnamespace('shardmaster_agent')
  JOIN (SELECT set_id, token FROM shardmaster_agent.reference_origin
        UNION
        SELECT set_id, token FROM shardmaster_agent.reference_copy) r
    ON r.set_id::text = split_part(substr(t.tgname, length('00_shardmaster_reference_') + 1), '_', 1)
 GROUP BY w.ord, r.token
 ORDER BY w.ord, r.token

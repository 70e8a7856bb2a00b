-- A trigger of others that fires when rows of the tables are deleted, and of which table; no row: there is none. {tables}:
-- their names, qualified and quoted.
SELECT format('trigger %I of %s', t.tgname, t.tgrelid::regclass)
  FROM (SELECT to_regclass(n)::oid AS oid FROM unnest({tables}::text[]) AS n
         UNION
        SELECT p.relid FROM unnest({tables}::text[]) AS n, pg_partition_tree(to_regclass(n)) AS p) AS tree
  JOIN pg_trigger t ON t.tgrelid = tree.oid
  JOIN pg_proc f ON f.oid = t.tgfoid
 WHERE NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') AND t.tgtype & 8 <> 0
   AND f.pronamespace IS DISTINCT FROM to_regnamespace('shardmaster_agent')
 ORDER BY 1 LIMIT 1

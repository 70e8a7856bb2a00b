-- Triggers that tables and their partitions have under wanted names. $1: tables, $2: names of triggers, $3: their functions,
-- $4: the column that each goes by, or NULL. Position of what is wanted, table, trigger, whether it is there as it
-- is to be: on the table itself, firing always, also as clones.
SELECT w.position, format('%I.%I', n.nspname, c.relname), t.tgname,
       t.tgrelid = w.relation AND t.tgenabled = 'A' AND t.is_ours
       AND (w.by IS NULL
            OR EXISTS (SELECT 1 FROM pg_depend d JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
                        WHERE d.classid = 'pg_trigger'::regclass AND d.objid = t.oid
                          AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.tgrelid AND a.attname = w.by)
               AND NOT EXISTS (SELECT 1 FROM pg_trigger clone
                                WHERE clone.tgname = t.tgname AND clone.tgparentid <> 0 AND clone.tgenabled <> 'A'
                                  AND clone.tgrelid IN (SELECT relid FROM pg_partition_tree(w.relation))))
  FROM unnest($1::oid[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY w (relation, trigger, function, by, position)
 CROSS JOIN LATERAL (SELECT w.relation UNION SELECT relid FROM pg_partition_tree(w.relation)) m (relation)
 CROSS JOIN LATERAL (
    -- By the index, one table at a time: joined as a whole, each trigger of the database would be compared with each that is wanted.
    SELECT t.oid, t.tgrelid, t.tgname, t.tgenabled,
           EXISTS (SELECT 1 FROM pg_proc f
                    WHERE f.oid = t.tgfoid AND f.proname = w.function
                      AND f.pronamespace = to_regnamespace('shardmaster_agent')) AS is_ours
      FROM pg_trigger t
     WHERE t.tgrelid = m.relation AND t.tgparentid = 0
       -- Version 0.1 gave the triggers of all tables one name: that of ours alone counts.
       AND t.tgname = ANY (ARRAY[w.trigger, regexp_replace(w.trigger, '_\d+$', '')]::name[])
    OFFSET 0) t
  JOIN pg_class c ON c.oid = t.tgrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE t.tgname = w.trigger OR t.is_ours
 ORDER BY w.position, c.oid

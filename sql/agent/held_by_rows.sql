-- Columns of a table, $1, of which another type has the server look through rows, or make an index
-- anew, although their bytes stay: of a CHECK constraint, of an index over an expression or with a
-- predicate, of statistics of several columns.
SELECT DISTINCT a.attname
  FROM (SELECT $1::oid AS oid UNION SELECT p.relid FROM pg_partition_tree($1::oid) p) tree
  JOIN pg_attribute a ON a.attrelid = tree.oid AND a.attnum > 0 AND NOT a.attisdropped
  JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum
 WHERE d.classid = 'pg_statistic_ext'::regclass
    OR d.classid = 'pg_constraint'::regclass
       AND EXISTS (SELECT FROM pg_constraint k WHERE k.oid = d.objid AND k.contype = 'c')
    OR d.classid = 'pg_class'::regclass
       AND EXISTS (SELECT FROM pg_index i WHERE i.indexrelid = d.objid AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL))

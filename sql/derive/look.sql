-- What a derived column of a table needs to know: $1, $2: its schema and name; $3: the column; $4: the columns of the
-- foreign key that leads to the table with the value; $5: its column with the value, NULL: the same name.
WITH child AS (
    SELECT c.oid, c.relkind, c.relowner, c.relnamespace, pg_get_userbyid(c.relowner) AS owner
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = $1 AND c.relname = $2
), fk AS (
    SELECT k.*, count(*) OVER () AS of_these
      FROM pg_constraint k JOIN child ON k.conrelid = child.oid
     WHERE k.contype = 'f'
       AND (SELECT array_agg(a.attname::text ORDER BY a.attname::text COLLATE "C")
              FROM unnest(k.conkey) u (attnum) JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.attnum)
           = (SELECT array_agg(t ORDER BY t COLLATE "C") FROM unnest($4::text[]) t)
     ORDER BY k.convalidated DESC, k.oid LIMIT 1
)
SELECT to_json(l) FROM (
SELECT child.oid::text, child.relkind AS kind, child.owner,
       pg_has_role(child.relowner, 'USAGE') AS may_own,
       EXISTS (SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                WHERE child.oid IN (i.inhrelid, i.inhparent) AND NOT c.relispartition) AS inherits,
       EXISTS (SELECT FROM pg_class c WHERE c.oid = child.oid AND c.relispartition) AS is_partition,
       EXISTS (SELECT FROM pg_partition_tree(child.oid::regclass) t JOIN pg_class c ON c.oid = t.relid WHERE c.relkind = 'f') AS has_foreign,
       EXISTS (SELECT FROM pg_class c WHERE c.oid IN (child.oid, fk.confrelid) AND c.relrowsecurity AND c.relforcerowsecurity) AS is_forced,
       (SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
         WHERE a.attrelid = child.oid AND a.attname = $3 AND NOT a.attisdropped) AS has_type,
       EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = child.oid AND a.attname = $3 AND NOT a.attisdropped
                  AND (a.attgenerated <> '' OR a.attidentity <> '')) AS is_generated,
       coalesce(fk.convalidated, false) AS is_valid, coalesce(fk.condeferrable, false) AS is_deferrable, coalesce(fk.of_these, 0) AS keys,
       pn.nspname AS parent_schema, p.relname AS parent_name,
       p.relkind AS parent_kind, pg_get_userbyid(p.relowner) AS parent_owner,
       coalesce(pg_has_role(p.relowner, 'USAGE'), false) AS may_own_parent,
       coalesce(has_table_privilege(child.relowner, p.oid, 'SELECT') AND has_any_column_privilege(child.relowner, p.oid, 'UPDATE')
                AND has_schema_privilege(child.relowner, pn.oid, 'USAGE'), false) AS owner_may_read,
       (SELECT coalesce(json_agg(json_build_object('from', f.attname, 'to', t.attname, 'nullable', NOT f.attnotnull,
                                          'operator', format('OPERATOR(%I.%s)', n.nspname, o.oprname)) ORDER BY u.at), '[]')
          FROM unnest(fk.conkey, fk.confkey, fk.conpfeqop) WITH ORDINALITY u (from_at, to_at, op, at)
          JOIN pg_attribute f ON f.attrelid = fk.conrelid AND f.attnum = u.from_at
          JOIN pg_attribute t ON t.attrelid = fk.confrelid AND t.attnum = u.to_at
          JOIN pg_operator o ON o.oid = u.op JOIN pg_namespace n ON n.oid = o.oprnamespace) AS pairs,
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = child.oid AND i.indisprimary) AS has_primary_key,
       -- A primary key contains the columns by which the table, and any partition of it, is partitioned. NULL: an expression.
       (SELECT coalesce(json_agg(k.attname ORDER BY k.level, k.at), '[]')
          FROM (SELECT a.attname, min(t.level) AS level, min(u.at) AS at
                  FROM pg_partition_tree(child.oid::regclass) t JOIN pg_partitioned_table p ON p.partrelid = t.relid
                 CROSS JOIN unnest(p.partattrs) WITH ORDINALITY u (attnum, at)
                  LEFT JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = u.attnum AND u.attnum > 0
                 GROUP BY a.attname) k) AS partition_columns,
       (SELECT coalesce(json_agg(DISTINCT a.attname), '[]')
          FROM pg_partition_tree(child.oid::regclass) t JOIN pg_partitioned_table p ON p.partrelid = t.relid
         CROSS JOIN unnest(p.partattrs) u (attnum)
          JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = u.attnum AND NOT a.attnotnull) AS nullable_columns,
       -- A unique index whose columns can be a primary key, the narrowest one.
       (SELECT json_build_object(
                   'columns', (SELECT json_agg(a.attname ORDER BY k.at)
                                 FROM unnest(i.indkey) WITH ORDINALITY k (attnum, at)
                                 JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum WHERE k.at <= i.indnkeyatts),
                   'index', (SELECT c.relname FROM pg_class c
                              WHERE c.oid = i.indexrelid AND child.relkind = 'r' AND NOT (0 <> ANY (i.indoption))
                                AND NOT EXISTS (SELECT FROM pg_constraint n WHERE n.conindid = i.indexrelid)))
          FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam AND m.amname = 'btree'
         WHERE i.indrelid = child.oid AND i.indisunique AND i.indisvalid AND i.indimmediate AND NOT i.indisprimary
           AND i.indpred IS NULL AND i.indexprs IS NULL
           AND NOT EXISTS (SELECT FROM unnest(i.indkey, i.indclass) WITH ORDINALITY k (attnum, class, at)
                             LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                             LEFT JOIN pg_opclass o ON o.oid = k.class
                            WHERE k.at <= i.indnkeyatts AND NOT (coalesce(a.attnotnull, false) AND o.opcdefault))
         ORDER BY i.indnkeyatts, i.indexrelid LIMIT 1) AS unique_key,
       v.type AS value_type, coalesce(v.is_not_null, false) AS is_value_not_null, v.collation
  FROM child
  LEFT JOIN fk ON true
  LEFT JOIN pg_class p ON p.oid = fk.confrelid
  LEFT JOIN pg_namespace pn ON pn.oid = p.relnamespace
  LEFT JOIN LATERAL (
       SELECT format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS is_not_null,
              CASE WHEN a.attcollation <> y.typcollation THEN format('%I.%I', cn.nspname, l.collname) END AS collation
         FROM pg_attribute a JOIN pg_type y ON y.oid = a.atttypid
         LEFT JOIN pg_collation l ON l.oid = a.attcollation LEFT JOIN pg_namespace cn ON cn.oid = l.collnamespace
        WHERE a.attrelid = p.oid AND a.attname = coalesce($5, $3) AND a.attnum > 0 AND NOT a.attisdropped) v ON true) l

-- Keys or buckets that come to the list of a key guard, by the type of its own column. A
-- keyspace of texts may have tables of numbers or uuids, and keys that are neither: no row has
-- them. $1: their names.
INSERT INTO {table}
SELECT (jsonb_populate_record(NULL::{table}, jsonb_build_object('key', w.name))).key
  FROM unnest($1::text[]) AS w (name)
 WHERE CASE (SELECT format_type(a.atttypid, NULL) FROM pg_attribute a
              WHERE a.attrelid = '{table}'::regclass AND a.attname = 'key')
       WHEN 'numeric' THEN
            w.name ~ '^[[:space:]]*[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]{1,4})?[[:space:]]*$'
            OR lower(w.name) = 'nan'
            OR lower(w.name) IN ('infinity', '-infinity') AND current_setting('server_version_num')::int >= 140000
       WHEN 'uuid' THEN
            w.name ~ '^([0-9a-fA-F]{4}-?){7}[0-9a-fA-F]{4}$' OR w.name ~ '^[{]([0-9a-fA-F]{4}-?){7}[0-9a-fA-F]{4}[}]$'
       ELSE true END
ON CONFLICT DO NOTHING

-- A temporary table of the session with a type that none of some tables has any more. {which}: with what its name begins.
SELECT c.relname
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = pg_my_temp_schema() AND c.relkind = 'r' AND starts_with(c.relname::text, {which})
   -- What the server has of its own runs nothing of others.
   AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
   AND NOT EXISTS (
       SELECT FROM unnest({schemas}::text[], {names}::text[]) AS w (nsp, rel)
         JOIN pg_namespace n ON n.nspname = w.nsp JOIN pg_class t ON t.relnamespace = n.oid AND t.relname = w.rel
         JOIN pg_attribute b ON b.attrelid = t.oid AND b.attnum > 0 AND NOT b.attisdropped
        WHERE b.atttypid = a.atttypid)
 LIMIT 1

-- A column whose value for rows from before it came lies in the catalog.
-- $1: tables that hold rows, $2: names of columns.
SELECT a.attname
  FROM unnest($1::oid[]) AS l (oid)
  JOIN pg_attribute a ON a.attrelid = l.oid
 WHERE a.attname = ANY ($2::text[]) AND a.atthasmissing
 LIMIT 1

-- By what the texts of a key are ordered, in the key's order: the collation of each, or the database's.
-- $1: the table. Catalogs that differ between versions are read as jsonb.
SELECT string_agg(CASE WHEN a.attcollation = 100
                       THEN concat_ws(' ', coalesce(d.facts ->> 'datlocprovider', 'c'),
                                      coalesce(d.facts ->> 'datlocale', d.facts ->> 'daticulocale', d.facts ->> 'datcollate'),
                                      d.facts ->> 'daticurules')
                       ELSE concat_ws(' ', co.facts ->> 'collprovider',
                                      coalesce(co.facts ->> 'colllocale', co.facts ->> 'colliculocale', co.facts ->> 'collcollate'),
                                      co.facts ->> 'collicurules') END, ', ' ORDER BY k.ord)
  FROM pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, ord), pg_attribute a,
       (SELECT oid, to_jsonb(c) AS facts FROM pg_collation c) co,
       (SELECT to_jsonb(b) AS facts FROM pg_database b WHERE b.datname = current_database()) d
 WHERE i.indrelid = $1::oid AND i.indisprimary AND k.ord <= i.indnkeyatts
   AND a.attrelid = i.indrelid AND a.attnum = k.attnum AND co.oid = a.attcollation

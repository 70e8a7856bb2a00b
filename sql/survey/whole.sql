-- What a database has beside its tables: a word for what it is, a name and a detail. $1: the schemas of the surveyed tables.
SELECT 'sequence', s.oid::regclass::text, n.nspname::text, s.relname::text
  FROM pg_class s JOIN pg_namespace n ON n.oid = s.relnamespace
 WHERE s.relkind = 'S' AND n.nspname::text = ANY ($1::text[])
   -- Neither a column nor a default draws from it, and no extension has brought it.
   AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = s.oid AND d.deptype IN ('a', 'i', 'e'))
   AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = s.oid AND d.classid = 'pg_attrdef'::regclass)
UNION ALL
SELECT 'foreign table', c.oid::regclass::text, NULL, NULL
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind = 'f' AND NOT c.relispartition AND n.nspname::text = ANY ($1::text[])
UNION ALL
SELECT 'event trigger', e.evtname, e.evtfoid::regproc::text, r.rolname
  FROM pg_event_trigger e JOIN pg_roles r ON r.oid = e.evtowner WHERE e.evtenabled <> 'D'
UNION ALL
SELECT 'large objects', count(*)::text, NULL, NULL FROM (SELECT FROM pg_largeobject_metadata LIMIT 1000000) l HAVING count(*) > 0
UNION ALL
SELECT 'subscription', s.subname, NULL, NULL FROM pg_subscription s WHERE s.subdbid = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
UNION ALL
SELECT 'publication', p.pubname, NULL, NULL FROM pg_publication p
 ORDER BY 1, 2

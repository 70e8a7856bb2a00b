-- The tables of some names in the agent's schema, and the functions as they are, as one number.
(SELECT pg_catalog.md5(pg_catalog.string_agg(o.what, ' ' ORDER BY o.what COLLATE "C"))
   FROM (SELECT c.relname::pg_catalog.text FROM pg_catalog.pg_class c
          WHERE c.relnamespace = 'shardmaster_agent'::pg_catalog.regnamespace AND c.relname = ANY (names)
         UNION ALL
         SELECT pg_catalog.concat_ws(' ', p.proname, p.prosecdef, p.provolatile, p.proconfig, p.proacl, p.prosrc) FROM pg_catalog.pg_proc p
          WHERE p.pronamespace = 'shardmaster_agent'::pg_catalog.regnamespace AND p.proname = ANY (names)) o (what))

-- Event triggers that fire for what a split creates, changes and drops on a shard. $1: the commands that it gives. By name: the event,
-- the function, whether it fires in a replica's session alone, and whether its text may raise an error for some names alone, which a
-- trial under others does not show. What an extension has brought is known by its trial.
SELECT quote_ident(e.evtname), e.evtevent, p.oid::regprocedure::text, e.evtenabled = 'R',
       m.objid IS NULL AND p.oid >= 16384
       AND CASE l.lanname
               WHEN 'plpgsql' THEN regexp_replace(regexp_replace(p.prosrc, '--[^\n]*', '', 'g'), '/\*.*?\*/', '', 'g')
                                   ~* '\mraise\s*;|\mraise\s+(?!\s|(debug|log|info|notice|warning)\M)|\massert\M'
               ELSE l.lanname <> 'internal' END
  FROM pg_event_trigger e JOIN pg_proc p ON p.oid = e.evtfoid JOIN pg_language l ON l.oid = p.prolang
  LEFT JOIN pg_depend m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid AND m.deptype = 'e'
 WHERE e.evtenabled <> 'D' AND e.evtevent IN ('ddl_command_start', 'ddl_command_end', 'sql_drop')
   AND (e.evttags IS NULL OR e.evttags && $1::text[])
 ORDER BY 1

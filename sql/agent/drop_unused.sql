-- Nothing of a split, redirect, guard, look-up or reference table is left: all goes but the
-- master's identity, the last decisions, and which reference tables were taken out, where there are any.
DO $agent$
DECLARE
    doomed text;
BEGIN
    IF NOT EXISTS (SELECT FROM shardmaster_agent.decision)
       AND NOT EXISTS (SELECT FROM shardmaster_agent.reference_ended) THEN
        DROP SCHEMA shardmaster_agent CASCADE;
        RETURN;
    END IF;
    SELECT string_agg(format('shardmaster_agent.%I', c.relname), ', ') INTO doomed
      FROM pg_catalog.pg_class c
     WHERE c.relnamespace = 'shardmaster_agent'::pg_catalog.regnamespace AND c.relkind IN ('r', 'p')
       AND c.relname <> 'master'
       AND NOT (c.relname = 'decision' AND EXISTS (SELECT FROM shardmaster_agent.decision))
       AND NOT (c.relname = 'reference_ended' AND EXISTS (SELECT FROM shardmaster_agent.reference_ended));
    IF doomed IS NOT NULL THEN
        EXECUTE 'DROP TABLE ' || doomed || ' CASCADE';
    END IF;
    SELECT string_agg(p.oid::pg_catalog.regprocedure::text, ', ') INTO doomed
      FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'shardmaster_agent'::pg_catalog.regnamespace;
    IF doomed IS NOT NULL THEN
        EXECUTE 'DROP ROUTINE ' || doomed || ' CASCADE';
    END IF;
    SELECT string_agg(format('shardmaster_agent.%I', c.relname), ', ') INTO doomed
      FROM pg_catalog.pg_class c
     WHERE c.relnamespace = 'shardmaster_agent'::pg_catalog.regnamespace AND c.relkind = 'S';
    IF doomed IS NOT NULL THEN
        EXECUTE 'DROP SEQUENCE ' || doomed || ' CASCADE';
    END IF;
END $agent$;

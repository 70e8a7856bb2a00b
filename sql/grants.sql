-- The last step of the installation: what every role may call, and what members of pg_monitor may. Who needs more is
-- granted it by name; a client needs EXECUTE on shard_of and shard_route alone.
DO $$
DECLARE
    routine regprocedure;
BEGIN
    FOR routine IN
        SELECT p.oid
          FROM pg_catalog.pg_depend d
          JOIN pg_catalog.pg_proc p ON p.oid = d.objid
         WHERE d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
           AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
           AND d.refobjid = (SELECT oid FROM pg_catalog.pg_extension WHERE extname = 'shardmaster')
           AND d.deptype = 'e'
           AND p.proname <> 'shard_for'
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', routine);
    END LOOP;

    -- Who may look at all of a server's statistics may look at these.
    FOR routine IN SELECT shardmaster.routines_of_level('monitor') LOOP
        EXECUTE pg_catalog.format('GRANT EXECUTE ON ROUTINE %s TO pg_monitor', routine);
    END LOOP;
END $$;

-- Behind each is its function, which is called as whoever asks: to read the view is no right.
GRANT SELECT ON @extschema@.shard_splits, @extschema@.shard_guards TO PUBLIC;

-- What the native function calls for one entry in {sample}: as in the function for rows, of which this is the end.
CREATE OR REPLACE FUNCTION shardmaster_agent.{function}_look() RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $agent$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM shardmaster_agent.lease
                    WHERE split_id OPERATOR(pg_catalog.=) {split}
                      AND pg_catalog.clock_timestamp() OPERATOR(pg_catalog.<) open_until
                      AND {queue_sizes} OPERATOR(pg_catalog.<) max_bytes) THEN
        PERFORM pg_catalog.setval('shardmaster_agent.{sequence}'::pg_catalog.regclass, 2);
    END IF;
END $agent$;
-- A library on the shard of another version than its extension has not the function, or cannot be loaded: capture is
-- the one in PL/pgSQL then.
DO $agent$
BEGIN
    PERFORM shardmaster.native_capture({split}, {ordinal});
EXCEPTION WHEN OTHERS THEN
    NULL;
END $agent$;

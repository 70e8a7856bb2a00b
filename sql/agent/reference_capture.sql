-- Called for every changed row of a reference table on its origin, in the WHEN clause of its
-- triggers: that refers to columns by their numbers, so that renaming one breaks no writer.
-- Runs with the mover's rights and without a SET clause, which would cost each writer; all
-- names in it are qualified, operators too. Nothing is left in the writer's session, and a
-- queue that is full takes no more: then the copies are made anew, and no writer fails.
CREATE OR REPLACE FUNCTION shardmaster_agent.{function}(change "char", {arguments}) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $agent$
BEGIN
    -- Its value is told to all at once, whatever becomes of who has set it. The row is
    -- changed already, so this transaction has a number: one that finds the queue full is
    -- older than the moment from which it is open again.
    IF pg_catalog.pg_sequence_last_value('shardmaster_agent.{sequence}'::pg_catalog.regclass) OPERATOR(pg_catalog.>) 1 THEN
        RETURN false;
    END IF;
    IF change OPERATOR(pg_catalog.=) 'I' THEN
        INSERT INTO shardmaster_agent.{queue} (op, {queue_keys}) VALUES (change, {new_keys});
    ELSE
        INSERT INTO shardmaster_agent.{queue} (op, {queue_keys}) VALUES (change, {old_keys});
        -- Compares images: a key type's own equality may be of any schema.
        IF change OPERATOR(pg_catalog.=) 'U' THEN
            IF pg_catalog.record_image_ne(ROW({new_keys}), ROW({old_keys})) THEN
                INSERT INTO shardmaster_agent.{queue} (op, {queue_keys}) VALUES (change, {new_keys});
            END IF;
        END IF;
    END IF;
    -- Looked at now and then: the size of a file costs as much as the entry itself.
    IF pg_catalog.date_part('microseconds', pg_catalog.clock_timestamp())::pg_catalog.int8
           OPERATOR(pg_catalog.%) {sample} OPERATOR(pg_catalog.=) 0 THEN
        IF EXISTS (SELECT 1 FROM shardmaster_agent.reference_origin o
                    WHERE o.set_id OPERATOR(pg_catalog.=) {set}
                      AND pg_catalog.pg_relation_size('shardmaster_agent.{queue}'::pg_catalog.regclass, 'main')
                          OPERATOR(pg_catalog.>) o.max_bytes) THEN
            PERFORM pg_catalog.setval('shardmaster_agent.{sequence}'::pg_catalog.regclass, 2);
        END IF;
    END IF;
    RETURN false;
END $agent$;
GRANT EXECUTE ON FUNCTION shardmaster_agent.{function}("char", {types}) TO PUBLIC;

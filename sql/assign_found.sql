-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- As whoever calls it: shards are asked as his login, and what he may not assign he does not.
CREATE FUNCTION shardmaster.assign_found(keyspace text, shards text[], timeout interval, reason text)
RETURNS TABLE (found_on text[], keys bigint, assigned boolean, example text, problem text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    lot   pg_catalog.record;
    lows  int[];
    highs int[];
    low   int;
    high  int;
BEGIN
    FOR lot IN
        SELECT k.found_on, pg_catalog.array_agg(k.key) AS keys
          FROM (SELECT f.key, f.found_on,
                       (pg_catalog.row_number() OVER (PARTITION BY f.found_on, f.key IS NULL) - 1) OPERATOR(pg_catalog./) 10000 AS number
                  FROM (SELECT u.key, pg_catalog.array_agg(DISTINCT u.shard) AS found_on
                          FROM shardmaster.unassigned($1, $2, $3) u GROUP BY u.key) f) k
         GROUP BY k.found_on, k.key IS NULL, k.number ORDER BY k.found_on, k.key IS NULL, k.number
    LOOP
        found_on := lot.found_on;
        IF pg_catalog.cardinality(lot.found_on) OPERATOR(pg_catalog.>) 1 OR lot.keys[1] IS NULL THEN
            keys := pg_catalog.cardinality(lot.keys);
            assigned := false;
            example := pg_catalog.left(lot.keys[1], 100);
            problem := CASE WHEN lot.keys[1] IS NULL THEN 'rows without a key' ELSE 'rows are on more than one shard' END;
            RETURN NEXT;
            CONTINUE;
        END IF;
        -- All at once; where that is refused in halves, down to the keys that it is refused for.
        lows := ARRAY[1];
        highs := ARRAY[pg_catalog.cardinality(lot.keys)];
        WHILE pg_catalog.cardinality(lows) OPERATOR(pg_catalog.>) 0 LOOP
            low := lows[1];
            high := highs[1];
            lows := lows[2:];
            highs := highs[2:];
            BEGIN
                PERFORM shardmaster.assign_many(lot.keys[low:high], lot.found_on[1], $1, false, $4);
                keys := high OPERATOR(pg_catalog.-) low OPERATOR(pg_catalog.+) 1;
                assigned := true;
                example := pg_catalog.left(lot.keys[low], 100);
                problem := NULL;
                RETURN NEXT;
            EXCEPTION WHEN data_exception OR object_not_in_prerequisite_state OR object_in_use THEN
                IF low OPERATOR(pg_catalog.<) high THEN
                    lows := ARRAY[low, (low OPERATOR(pg_catalog.+) high) OPERATOR(pg_catalog./) 2 OPERATOR(pg_catalog.+) 1] OPERATOR(pg_catalog.||) lows;
                    highs := ARRAY[(low OPERATOR(pg_catalog.+) high) OPERATOR(pg_catalog./) 2, high] OPERATOR(pg_catalog.||) highs;
                    CONTINUE;
                END IF;
                keys := 1;
                assigned := false;
                example := pg_catalog.left(lot.keys[low], 100);
                problem := pg_catalog.left(SQLERRM, 400);
                RETURN NEXT;
            END;
        END LOOP;
    END LOOP;
END $$;
COMMENT ON FUNCTION shardmaster.assign_found(text, text[], interval, text) IS 'internal: shard_assign_found()';

CREATE FUNCTION @extschema@.shard_assign_found(keyspace text DEFAULT 'default', shards text[] DEFAULT NULL,
                                               timeout interval DEFAULT '10 min', reason text DEFAULT 'its rows were found there')
RETURNS TABLE (found_on text[], keys bigint, assigned boolean, example text, problem text)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT f.found_on, f.keys, f.assigned, f.example, f.problem FROM shardmaster.assign_found($1, $2, $3, $4) f
$$;
COMMENT ON FUNCTION @extschema@.shard_assign_found(text, text[], interval, text) IS
'assigns each unassigned key of a directory keyspace to the shard that has its rows (see shard_unassigned), ten thousand keys in a routing version. A key with rows on several shards, rows without a key, and a key that cannot be assigned each get a row with the reason instead. No row moves. Example: SELECT * FROM shard_assign_found(''default''). Errors as of shard_unassigned';

SET LOCAL search_path = @extschema@, pg_temp;

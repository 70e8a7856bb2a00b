-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- What still refuses clients, as this master knows it.
CREATE TYPE shardmaster.guards_row AS (split_id bigint, shard_key text, side text, state text, since timestamptz, keys bigint, keyspace text, tables text[]);
COMMENT ON TYPE shardmaster.guards_row IS 'the columns of shard_guards()';

CREATE FUNCTION @extschema@.shard_guards()
RETURNS SETOF shardmaster.guards_row
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.id, l.shard_key, l.side,
           CASE l.side
               WHEN 'source' THEN CASE WHEN p.cutover_step = 'moved' THEN 'moved'
                                       WHEN p.phase = 'completed' THEN 'fenced' ELSE 'capture' END
               ELSE CASE WHEN p.cutover_step IN ('opened', 'moved') THEN 'open' ELSE 'closed' END
           END,
           l.created_at, cardinality(p.tenants)::bigint, p.keyspace, NULL::text[]
      FROM shardmaster.split_plan p JOIN shardmaster.split_ledger l ON l.split_id = p.id
     WHERE l.removed_at IS NULL AND p.finished_at IS NULL
    UNION ALL
    SELECT p.id, p.source_shard, 'source', CASE WHEN r.ending THEN 'ending' WHEN r.asked_of IS NOT NULL THEN 'asking' ELSE 'redirect' END,
           p.redirect_since, count(*), p.keyspace, NULL
      FROM shardmaster.split_plan p JOIN shardmaster.redirect r ON r.split_id = p.id
     WHERE p.redirect_since IS NOT NULL
     GROUP BY p.id, 4
    UNION ALL
    SELECT NULL, g.shard_key, 'standing', g.state, g.since, g.keys, g.keyspace, g.tables FROM shardmaster.shard_guard g
     ORDER BY 1, 3, 2, 7
$$;
COMMENT ON FUNCTION @extschema@.shard_guards() IS
    'what refuses clients: both sides of active splits and redirects of finished ones, and key guards. side: source, target, or standing for a key guard. state: of a source capture, fenced or moved; of a target closed or open; of a finished split redirect, or ending and asking while keys are assigned to the shard again; of a key guard installing, guarded, partial (a table was added since, and needs another call), removing or left (removed by force, until shard_cleanup()). keys: the number of entries. tables: the number of tables, of a key guard those with its triggers; see the view shardmaster.shard_guard. Example: SELECT * FROM shard_guards()';

-- For whoever types a table's name; as the function.
CREATE VIEW @extschema@.shard_guards AS SELECT * FROM @extschema@.shard_guards();
COMMENT ON VIEW @extschema@.shard_guards IS 'what refuses clients, as shard_guards() has it, for those who may call that';

SET LOCAL search_path = @extschema@, pg_temp;

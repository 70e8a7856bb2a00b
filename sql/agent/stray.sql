-- What COPY calls, in a session of the mover on the target, for a row that is not in the
-- scope: whatever the source gives, it writes none of another tenant's. IMMUTABLE, because a
-- volatile function would have COPY insert row by row.
CREATE OR REPLACE FUNCTION pg_temp.shardmaster_stray(table_name text, key text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $agent$
BEGIN
    RAISE EXCEPTION 'shard "%" returned a row of % for table %, which split {split} does not move', {other_shard},
                    coalesce(format('key "%s"', key), 'no key'), table_name
        USING ERRCODE = 'SM006',
              DETAIL = json_build_object('table', table_name, 'key', key, 'shard', {other_shard}, 'split_id', {split})::text,
              HINT = 'Nothing of this step was kept. Find out what on shard ' || quote_literal({other_shard})
                     || ', or between it and the master, returns rows of other keys. Then resume the split, or roll it back.';
END $agent$

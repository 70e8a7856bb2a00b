-- Takes free slots, as many as there are keys, and makes their reservations. The caller
-- holds the shard's lock and has seen to it that there are enough.
-- $1 shard, $2 kind, $3 logical keys, $4 tenants, $5 status, $6 split
WITH wanted AS (
    SELECT logical_key, tenant_id, n FROM unnest($3, $4) WITH ORDINALITY k (logical_key, tenant_id, n)
), free AS MATERIALIZED (
    SELECT slot_no FROM shardmaster.shard_slots
     WHERE shard_id = $1 AND reservation_id IS NULL
     ORDER BY returned_no, fresh_no LIMIT (SELECT count(*) FROM wanted) FOR UPDATE
), slot AS MATERIALIZED (
    SELECT f.slot_no, w.logical_key, w.tenant_id, pg_catalog.nextval('shardmaster.shard_reservation_id_seq') AS id
      FROM (SELECT slot_no, row_number() OVER (ORDER BY slot_no) AS n FROM free) f
      JOIN wanted w USING (n)
), taken AS (
    UPDATE shardmaster.shard_slots s
       SET reservation_id = slot.id, tenant_id = slot.tenant_id, fresh_no = NULL, returned_no = NULL,
           resource_id = CASE WHEN $5 = 'confirmed' THEN slot.logical_key END
      FROM slot WHERE s.shard_id = $1 AND s.slot_no = slot.slot_no
)
INSERT INTO shardmaster.shard_reservation
       (id, kind, logical_key, tenant_id, shard_id, slot_no, status, resource_id, confirmed_at, split_id)
SELECT id, $2, logical_key, tenant_id, $1, slot_no, $5,
       CASE WHEN $5 = 'confirmed' THEN logical_key END,
       CASE WHEN $5 = 'confirmed' THEN pg_catalog.clock_timestamp() END, $6
  FROM slot

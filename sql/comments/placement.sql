COMMENT ON FUNCTION shard_reserve_slot(text, text, text, interval, text) IS
'reserves a slot of a shard of the kind for a logical key, or returns the live reservation that the tenant has for it, pending or confirmed. The lease counts from now. Strategies: fill_first (the shard with the least room), spread (the most), consistent (by the hash of the key). SM003: no room, DETAIL names what is full and what is draining; SM004: the tenant''s quota is used up; SM005: another tenant has the key; 22023: no lease or strategy';
COMMENT ON FUNCTION shard_confirm_slot(bigint, text) IS
'the resource is there: the slot is held until it is freed. With the same resource again it does nothing. SM005, saying why: the lease has run out, it was cancelled, or is confirmed with another resource; 55000: the shard is disabled; 42704: unknown';
COMMENT ON FUNCTION shard_cancel_slot(bigint) IS
'gives a pending reservation up: its slot is free. One that has ended stays as it is. 55000: it is confirmed; 42704: unknown';
COMMENT ON FUNCTION shard_renew_slot(bigint, interval) IS
'lets the lease of a pending reservation run for so long from now on, and returns its end. SM005: it is not live, or has no lease; 55000: the shard is disabled; 42704: unknown';
COMMENT ON FUNCTION shard_free_slot(text, text) IS
'the resource was deleted: the slot of the confirmed key is free, its reservation released. False, and nothing changed, if the key is not confirmed. 55006: the slot of a tenant that is routed to a server; so for the calls by reservation_id, and for slots that a split keeps';
COMMENT ON FUNCTION shard_expire_leases() IS
'expires all reservations whose lease has run out, and returns how many. The worker does it by itself, see shardmaster.lease_sweep_interval';
COMMENT ON FUNCTION shard_capacity(text) IS
'how full each shard of a kind (NULL: of all) is: slots that there are (minted), free, leased, confirmed, and how many more it takes; NULL: unlimited';
COMMENT ON FUNCTION shard_set_quota(text, text, bigint) IS
'how many slots of a kind a tenant may hold, leased and confirmed; NULL: as many as there are. Below what it holds nothing is taken away. Waits for open reservations of the tenant';
COMMENT ON FUNCTION shard_tenant_usage(text, timestamptz, timestamptz) IS
'for each kind, slots that a tenant (NULL: each tenant) has leased and confirmed, its quota, and the seconds for which it has held slots within the interval, from reservation to release';
COMMENT ON FUNCTION shard_place_tenant(text, text, text) IS
'routes a new tenant to a server that has room, as the strategy says (see shard_reserve_slot), with its slot where the server has a capacity, and returns the shard''s key; of a tenant that is routed already, its shard. SM003: no room';

-- With the few rows of a new catalog the planner would read whole tables, and keep to
-- it in the session's plans when they have grown.
ALTER FUNCTION shard_reserve_slot(text, text, text, interval, text) SET enable_seqscan = off;
ALTER FUNCTION shard_reserve_slot(text, text, text, interval, text) SET enable_bitmapscan = off;
ALTER FUNCTION shard_reserve_slot(text, text, text, interval, text) SET plan_cache_mode = force_generic_plan;

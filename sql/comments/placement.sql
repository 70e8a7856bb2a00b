COMMENT ON FUNCTION shard_reserve_slot(text, text, text, interval, text) IS
'reserves a slot of a shard of the kind for a logical key, or returns the live reservation that the tenant already has for it, pending or confirmed. The lease begins now. strategy: fill_first (the shard with the least room), spread (the most), consistent (by the hash of the key). Example: SELECT * FROM shard_reserve_slot(''vector'', ''index-7'', ''42''). SM003: no room; DETAIL names what is full and what is draining. SM004: the tenant''s quota is used up; SM005: another tenant has the key; 22023: no such lease or strategy';
COMMENT ON FUNCTION shard_confirm_slot(bigint, text) IS
'confirms that the resource exists: the slot is occupied until it is freed. With the same resource again it does nothing. Example: SELECT shard_confirm_slot(17, ''collection-7''). SM005: the lease has expired, it was cancelled, or it is confirmed with another resource; 55000: the shard is disabled; 42704: unknown';
COMMENT ON FUNCTION shard_cancel_slot(bigint) IS
'cancels a pending reservation: its slot is free. One that has ended stays as it is. Example: SELECT shard_cancel_slot(17). 55000: it is confirmed; 42704: unknown';
COMMENT ON FUNCTION shard_renew_slot(bigint, interval) IS
'restarts the lease of a pending reservation from now, and returns its end. Example: SELECT shard_renew_slot(17, ''5 min''). SM005: it is not live, or has no lease; 55000: the shard is disabled; 42704: unknown';
COMMENT ON FUNCTION shard_free_slot(text, text) IS
'frees the slot of a confirmed key after its resource was deleted. Returns false if the key is not confirmed. Example: SELECT shard_free_slot(''vector'', ''index-7''). 55006: the slot of a tenant that is routed to a server, which cannot be freed here';
COMMENT ON FUNCTION shard_expire_leases() IS
'expires all reservations whose lease has ended, and returns their number. The worker does it too, see shardmaster.lease_sweep_interval. Example: SELECT shard_expire_leases()';
COMMENT ON FUNCTION shard_capacity(text) IS
'how full each shard of a kind (NULL: of all kinds) is: slots that exist (minted), free, leased, confirmed, and how many more fit; NULL: unlimited. Example: SELECT * FROM shard_capacity()';
COMMENT ON FUNCTION shard_set_quota(text, text, bigint) IS
'sets how many slots of a kind a tenant may hold, leased and confirmed; NULL: no limit. A quota below what it holds takes nothing away. Waits for open reservations of the tenant. Example: SELECT shard_set_quota(''42'', ''vector'', 10)';
COMMENT ON FUNCTION shard_tenant_usage(text, timestamptz, timestamptz) IS
'for each kind, the slots that a tenant (NULL: each tenant) has leased and confirmed, its quota, and the seconds for which it held slots within the interval, from reservation to release. Example: SELECT * FROM shard_tenant_usage(''42'')';
COMMENT ON FUNCTION shard_place_tenant(text, text, text) IS
'routes a new tenant to a server with room, by the strategy (see shard_reserve_slot), with a slot if the server has a capacity. Returns the shard''s key; for a tenant with a route, its shard. Example: SELECT shard_place_tenant(''42'', ''spread''). SM003: no room';

-- With the few rows of a new catalog the planner would read whole tables, and keep to
-- it in the session's plans when they have grown.
ALTER FUNCTION shard_reserve_slot(text, text, text, interval, text) SET enable_seqscan = off;
ALTER FUNCTION shard_reserve_slot(text, text, text, interval, text) SET enable_bitmapscan = off;
ALTER FUNCTION shard_reserve_slot(text, text, text, interval, text) SET plan_cache_mode = force_generic_plan;

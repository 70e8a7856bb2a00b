COMMENT ON FUNCTION @extschema@.shard_trust_owner(text, text) IS
    'lets splits run, with all rights that the mover has on this shard, functions and expressions that the role has written. role: its plain name on the shard''s server, which is asked for its number: another role that comes to the name later is not trusted. Errors: 42704 no such shard or role, 22023 a shard without rows, 08000 a server that is not reached';
COMMENT ON FUNCTION @extschema@.shard_distrust_owner(text, text) IS
    'takes back what shard_trust_owner() has said; splits that are under way stop in their next step where they would run its code. Errors as of shard_trust_owner';

COMMENT ON FUNCTION @extschema@.shard_trust_owner(text, text) IS
    'lets splits run, with all rights that the mover has on this shard, functions and expressions that the role has written. role: its plain name on the shard''s server. Errors: 42704 no such shard, 22023 a shard without rows';
COMMENT ON FUNCTION @extschema@.shard_distrust_owner(text, text) IS
    'takes back what shard_trust_owner() has said; splits that are under way notice it when their worker starts anew or a table''s definition changes. Errors as of shard_trust_owner';

COMMENT ON FUNCTION shard_lookup(text, text) IS
'to which key of the other keyspace a key of a lookup index leads: its owner. 42704: no row of the table has the key, as far as the last look tells; 55000: not all shards have been looked through yet; 22023: the keyspace is no lookup index';
COMMENT ON FUNCTION shard_lookup_claim(text, text, text, interval) IS
'claims a key of a lookup index for an owner before its row is inserted; until when, or NULL where the row is there already, as of the last look: the claim then holds beside it. lease: how long the claim holds without a row. It leads there from then on. 23505: another owner has it, or has claimed it; 42704: the owner is routed nowhere; 55000: not all shards have been looked through yet, or another owner''s lease has ended and his shard was not asked for the row since';
COMMENT ON FUNCTION shard_lookup_conflicts(text) IS
'keys of a lookup index that more than one owner has a row with: each owner that it does not lead to, and routed_to, the one that it leads to. When that one''s row goes, the next takes its place';
COMMENT ON FUNCTION shard_lookups() IS
'each lookup index with each of its shards. state: new, filling, sweeping (pairs are looked at again, since changes may have been missed) or filled. waiting: changes that are queued there, up to 100000; lag_seconds: the age of the oldest; waits_for: what keeps it from going on';

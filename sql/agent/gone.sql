-- On the target, from the moment it is open until finish: keys of rows that its clients
-- have deleted or given another key. Finish deletes a row on the source only if it is on
-- the target or its key is here. Keys in their own types; op 'T': all of one leaf.
CREATE TABLE IF NOT EXISTS shardmaster_agent.{gone} (
    op   "char" NOT NULL,
    leaf oid,
    {key_definitions}
);
CREATE INDEX IF NOT EXISTS {gone}_key ON shardmaster_agent.{gone} ({keys});

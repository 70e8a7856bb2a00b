-- On the target, from the moment it is open until finish: keys of rows that its clients have
-- changed. Finish deletes a row on the source only if the target has it as it was, or its key
-- is here. Keys in their own types. op 'D': deleted; 'U': given another key; 'C': other values;
-- 'T': all of one leaf; 'O': the log was too long for some of other values, so that rows can
-- be told by their keys alone.
CREATE TABLE IF NOT EXISTS shardmaster_agent.{changed} (
    op   "char" NOT NULL,
    leaf oid,
    {key_definitions}
);
-- By the numbers of the key's columns: with another key, what is here tells nothing.
COMMENT ON TABLE shardmaster_agent.{changed} IS {key_numbers};
CREATE INDEX IF NOT EXISTS {changed}_key ON shardmaster_agent.{changed} ({keys});

-- The agent's tables would be in it, of which subscribers know nothing.
SELECT 'publications of all tables', s.slots IS NULL,
       format('publication %I is FOR ALL TABLES', p.pubname) || coalesce('; read by ' || s.slots, ', nobody reads it'),
       'Its subscribers would receive changes of the schema shardmaster_agent, and stop at a table that they do not have. Publish tables or schemas by name, let the subscribers catch up, ALTER SUBSCRIPTION .. SET PUBLICATION, and drop this publication.'
  FROM pg_publication p
 CROSS JOIN (SELECT string_agg(format('slot %I', slot_name), ', ' ORDER BY slot_name) FROM pg_replication_slots
              -- Those of a table's first copy come and go beside their subscription's own.
              WHERE plugin = 'pgoutput' AND database = current_database()
                AND slot_name !~ '^pg_\d+_sync_\d+_\d+$') s (slots)
 WHERE p.puballtables AND (p.pubinsert OR p.pubupdate OR p.pubdelete)

//! The tables that splits of the matrix move, and the objects that splits leave in a database.

use crate::Result;
use crate::cluster::{CLIENT, Cluster, OWNER};
use postgres::Client;

/// Creates two tables, one of which refers to the other, on both shards, and registers them.
pub fn create_tables(cluster: &Cluster) -> Result<()> {
    create_tables_of(cluster, "default")
}

pub(super) fn create_tables_of(cluster: &Cluster, keyspace: &str) -> Result<()> {
    for shard in &cluster.shards {
        cluster.owner_of(shard)?.batch_execute(&format!(
            "SET ROLE {OWNER};
             CREATE TABLE items (tenant text, id int, val text, PRIMARY KEY (tenant, id));
             CREATE TABLE notes (tenant text, id int, item int, val text, PRIMARY KEY (tenant, id),
                                 FOREIGN KEY (tenant, item) REFERENCES items ON DELETE CASCADE);
             GRANT SELECT, INSERT, UPDATE, DELETE ON items, notes TO {CLIENT};
             INSERT INTO items SELECT 'stays', i, i::text FROM generate_series(1, 50) i"
        ))?;
    }
    name_tables(&mut cluster.superuser()?, keyspace)
}

/// Registers the tables with a master.
pub fn name_tables(master: &mut Client, keyspace: &str) -> Result<()> {
    for table in ["items", "notes"] {
        let query = "SELECT shard_table_add($1, 'tenant', $2, key_type => 'text')";
        master.execute(query, &[&table, &keyspace])?;
    }
    Ok(())
}

/// Whether the agent's schema has more than what stays until the shard is dropped.
pub const AGENT_HAS_MORE: &str =
    "EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = to_regnamespace('shardmaster_agent')
                  AND c.relkind IN ('r', 'S', 'p', 'v') AND c.relname NOT IN ('master', 'decision'))
    OR EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = to_regnamespace('shardmaster_agent'))";

/// Returns every object of ours in a database, except those that stay until the shard is dropped.
pub fn leftovers(client: &mut Client) -> Result<Vec<String>> {
    let query = format!(
        "SELECT 'schema ' || nspname FROM pg_namespace
          WHERE nspname LIKE 'shardmaster%' AND (nspname <> 'shardmaster_agent' OR {AGENT_HAS_MORE})
         UNION ALL SELECT 'trigger ' || tgname FROM pg_trigger WHERE tgname LIKE '%shardmaster%'"
    );
    let rows = client.query(&query, &[])?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Returns every object of a database, ours or not, except those that stay until the shard is dropped. The
/// result must be the same before and after. A table's TOAST table belongs to the table.
pub fn objects(client: &mut Client) -> Result<Vec<String>> {
    let query = format!(
        "SELECT name FROM (
             SELECT 'schema ' || nspname FROM pg_namespace
              WHERE nspname !~ '^pg_(toast_)?temp_' AND (nspname <> 'shardmaster_agent' OR {AGENT_HAS_MORE})
             UNION ALL SELECT 'relation ' || c.oid::regclass FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                        WHERE n.nspname !~ '^pg_((toast_)?temp_|toast$)'
             UNION ALL SELECT 'function ' || oid::regprocedure FROM pg_proc
             UNION ALL SELECT 'type ' || oid::regtype FROM pg_type
             UNION ALL SELECT format('trigger %s of %s', tgname, tgrelid::regclass) FROM pg_trigger
             UNION ALL SELECT format('rule %s of %s', rulename, ev_class::regclass) FROM pg_rewrite
             UNION ALL SELECT format('default rights %s', oid) FROM pg_default_acl) o (name)
          WHERE name !~ '^(relation|type) shardmaster_agent\\.(master|decision)'
          ORDER BY 1"
    );
    let rows = client.query(&query, &[])?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

//! The cluster of a walk: four shards behind links that can be cut, three keyspaces with their tables, and
//! the sessions by which a walk asks a shard whether a key is writable.

use super::keys::{self, BUCKETS, Key, Space};
use crate::Result;
use crate::cluster::{CLIENT, Cluster, DATABASE, MOVER, OWNER, Shard, prepare_shard};
use crate::relay::Relay;
use std::time::Duration;

/// The number of shards. Each of the first ones is a server, and the last is another schema of the last server.
pub const SHARDS: usize = 4;
pub const SERVERS: usize = 3;
/// The schema of the last shard.
const OTHER: &str = "other";
/// The setting shardmaster.cutover_timeout of a walk.
pub const DEADLINE: Duration = Duration::from_secs(3);
/// How long a key may be refused while its shard lives.
pub const BOUND: Duration = Duration::from_secs(5);

pub struct WalkCluster {
    pub cluster: Cluster,
    pub relays: Vec<Relay>,
    pub keys: Vec<Key>,
}

impl WalkCluster {
    pub fn new() -> Result<WalkCluster> {
        let mut cluster = Cluster::servers(
            SERVERS,
            &[
                "fsync = off",
                "shardmaster.tail_interval = 50",
                "shardmaster.cutover_timeout = 3000",
                "shardmaster.remote_timeout = 5000",
                "shardmaster.watch_interval = 2000",
                "shardmaster.route_wait_timeout = 1000",
                "max_prepared_transactions = 4",
            ],
        )?;
        let key = "shard_d".to_owned();
        cluster.shards.push(Shard { key, server: Some(SERVERS - 1), namespace: OTHER.into() });
        let relays = cluster.servers.iter().map(Relay::before).collect::<Result<Vec<_>>>()?;
        let stage = WalkCluster { cluster, relays, keys: keys::all() };
        stage.link()?;
        stage.add_other()?;
        for shard in &stage.cluster.shards {
            stage.create_tables(&mut stage.cluster.owner_of(shard)?)?;
        }
        stage.route()?;
        Ok(stage)
    }

    /// Lets workers connect through the links, and clients directly.
    fn link(&self) -> Result<()> {
        let mut master = self.cluster.superuser()?;
        for (index, relay) in self.relays.iter().enumerate() {
            let workers = relay.conninfo(DATABASE, MOVER);
            let clients = self.cluster.servers[index].conninfo(DATABASE, CLIENT);
            master.execute(
                "UPDATE shardmaster.shard SET conninfo = $2, client_conninfo = $3 WHERE shard_key = $1",
                &[&self.cluster.shards[index].key, &workers, &clients],
            )?;
        }
        Ok(())
    }

    fn add_other(&self) -> Result<()> {
        let shard = &self.cluster.shards[SHARDS - 1];
        let mut owner = self.cluster.owner_of(shard)?;
        prepare_shard(&mut owner, OTHER)?;
        // The public schema of the other shards grants this to everybody.
        owner.batch_execute(&format!("GRANT USAGE ON SCHEMA {OTHER} TO PUBLIC"))?;
        self.add_shard(&shard.key)
    }

    /// Adds the last shard under this name.
    pub fn add_shard(&self, name: &str) -> Result<()> {
        let workers = self.relays[SERVERS - 1].conninfo(DATABASE, MOVER);
        let clients = self.cluster.servers[SERVERS - 1].conninfo(DATABASE, CLIENT);
        let query = "SELECT shard_add($1, $2, namespace => $3, client_conninfo => $4)";
        self.cluster.superuser()?.execute(query, &[&name, &workers, &OTHER, &clients])?;
        Ok(())
    }

    /// Returns the server of a shard, by its index.
    pub fn server_of(&self, shard: usize) -> usize {
        shard.min(SERVERS - 1)
    }

    /// Opens an ordinary client's session on a shard.
    pub fn client_of(&self, shard: usize) -> Result<postgres::Client> {
        let mut client = self.cluster.servers[self.server_of(shard)].connect(DATABASE, CLIENT)?;
        client.batch_execute(&format!("SET search_path = {}", self.cluster.shards[shard].namespace))?;
        Ok(client)
    }

    fn create_tables(&self, owner: &mut postgres::Client) -> Result<()> {
        for space in Space::ALL {
            let ([parent, child], column, key_type) = (space.tables(), space.column(), space.sql_type());
            let partitions = |table: &str| match space {
                Space::Hash => format!(
                    "PARTITION BY RANGE (id);
                     CREATE TABLE {table}_low PARTITION OF {table} FOR VALUES FROM (MINVALUE) TO (20);
                     CREATE TABLE {table}_high PARTITION OF {table} FOR VALUES FROM (20) TO (1000000);
                     GRANT TRUNCATE ON {table}_low TO {CLIENT}"
                ),
                Space::Directory | Space::Range => String::new(),
            };
            let (of_parent, of_child) = (partitions(parent), partitions(child));
            owner.batch_execute(&format!(
                "SET ROLE {OWNER};
                 CREATE TABLE {parent} ({column} {key_type}, id int, val text NOT NULL, PRIMARY KEY ({column}, id)) {of_parent};
                 CREATE TABLE {child} ({column} {key_type}, id int, val text NOT NULL, PRIMARY KEY ({column}, id),
                     FOREIGN KEY ({column}, id) REFERENCES {parent} ON UPDATE CASCADE ON DELETE CASCADE) {of_child};
                 GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON {parent}, {child} TO {CLIENT};
                 RESET ROLE"
            ))?;
        }
        owner.batch_execute(&format!(
            "CREATE FUNCTION probe(parent text, key text) RETURNS void LANGUAGE plpgsql AS $$
             BEGIN
                 EXECUTE format('INSERT INTO %I VALUES (%L, 500000, %L)', parent, key, 'probe');
                 RAISE EXCEPTION 'writable' USING ERRCODE = 'WK000';
             END $$;
             GRANT EXECUTE ON FUNCTION probe(text, text) TO {CLIENT}"
        ))?;
        Ok(())
    }

    fn route(&self) -> Result<()> {
        let mut master = self.cluster.superuser()?;
        let buckets = i32::try_from(BUCKETS.get())?;
        master.batch_execute("SELECT shard_keyspace_add('docs', 'range')")?;
        master.execute("SELECT shard_keyspace_add('events', 'hash', $1, 'bigint')", &[&buckets])?;
        for space in Space::ALL {
            for table in space.tables() {
                let query = "SELECT shard_table_add($1, $2, $3)";
                master.execute(query, &[&table, &space.column(), &space.name()])?;
            }
        }
        for (index, key) in self.keys.iter().enumerate() {
            if key.space == Space::Directory {
                let shard = &self.cluster.shards[index % SHARDS].key;
                master.execute("SELECT shard_assign($1, $2)", &[&key.text, shard])?;
            }
        }
        master.batch_execute(
            "SELECT shard_assign_range(NULL, 'f', 'shard_a', 'docs'),
                    shard_assign_range('f', 'n', 'shard_b', 'docs'),
                    shard_assign_range('n', NULL, 'shard_c', 'docs')",
        )?;
        Ok(())
    }

    pub fn shard_name(&self, shard: usize) -> &str {
        &self.cluster.shards[shard].key
    }

    /// Returns the index of a shard by its name.
    pub fn shard_named(&self, name: &str) -> Option<usize> {
        self.cluster.shards.iter().position(|shard| shard.key == name)
    }

    /// Returns the indexes of the keyspace's keys.
    pub fn keys_of(&self, space: Space) -> impl Iterator<Item = usize> {
        (0..self.keys.len()).filter(move |index| self.keys[*index].space == space)
    }
}

//! Lookup indexes by another column: the entries on a master, compared with the shards' rows.

use crate::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use crate::fixture::{LIMIT, by_superusers, state_of};
use crate::wait;
use postgres::Client;
use std::collections::BTreeSet;

/// Makes two servers with the table `users`. The tenants `a` and `b` are on the first server, `c` is on the second.
pub fn stage(config: &[&str]) -> Cluster {
    let mut lines = vec!["fsync = off", "max_prepared_transactions = 5", "shardmaster.tail_interval = 20"];
    lines.extend_from_slice(config);
    let cluster = Cluster::servers(2, &lines).unwrap();
    by_superusers(
        &cluster,
        &format!(
            "SET ROLE {OWNER}; CREATE TABLE users (tenant text, id int, email text, PRIMARY KEY (tenant, id));
             CREATE INDEX ON users (email); GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON users TO {CLIENT}"
        ),
    );
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_table_add('users', 'tenant', key_type => 'text');
             SELECT shard_assign_many('{a,b}', 'shard_a'), shard_assign('c', 'shard_b')",
        )
        .unwrap();
    cluster
}

pub const ADD: &str = "SELECT shard_keyspace_add('emails', 'lookup', key_type => 'text', of => 'default');
    SELECT shard_table_add('users', 'email', 'emails')";

pub fn add(cluster: &Cluster) -> Client {
    let mut master = cluster.superuser().unwrap();
    master.batch_execute(ADD).unwrap();
    wait_filled(&mut master);
    master
}

pub fn wait_filled(master: &mut Client) {
    let filled =
        "SELECT count(*) = 2 AND bool_and(state = 'filled') FROM shard_lookups() WHERE keyspace = 'emails'";
    wait::until_true(master, "filled", LIMIT, filled).unwrap();
}

pub fn texts(client: &mut Client, query: &str) -> BTreeSet<String> {
    client.query(query, &[]).unwrap().iter().map(|row| row.get(0)).collect()
}

/// Returns the pairs that the master has, including conflicts.
pub fn pairs(master: &mut Client) -> BTreeSet<String> {
    texts(
        master,
        "SELECT concat_ws(' ', key, owner) FROM shardmaster.lookup_entry WHERE has_row
          UNION ALL SELECT concat_ws(' ', key, owner) FROM shardmaster.lookup_conflict",
    )
}

/// Returns the pairs of the rows that are on the shard to which their tenant is routed.
pub fn rows(cluster: &Cluster, master: &mut Client) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (server, shard) in ["shard_a", "shard_b"].into_iter().enumerate() {
        let tenants: Vec<String> = master
            .query("SELECT key FROM shard_entries() WHERE write_shard = $1", &[&shard])
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect();
        let mut client = cluster.servers[server].superuser(DATABASE).unwrap();
        let query = "SELECT DISTINCT concat_ws(' ', email, tenant) FROM users WHERE email IS NOT NULL AND tenant = ANY ($1)";
        found.extend(client.query(query, &[&tenants]).unwrap().iter().map(|row| row.get::<_, String>(0)));
    }
    found
}

/// Waits until the master's pairs equal those of the rows, as they must while nothing changes.
pub fn wait_equal(cluster: &Cluster, master: &mut Client) {
    let mut last = (BTreeSet::new(), BTreeSet::new());
    let outcome = wait::until("pairs are rows", LIMIT, || {
        last = (pairs(master), rows(cluster, master));
        Ok((last.0 == last.1).then_some(()))
    });
    if outcome.is_err() {
        let extra: Vec<&String> = last.0.difference(&last.1).take(5).collect();
        let missing: Vec<&String> = last.1.difference(&last.0).take(5).collect();
        let shown: Vec<String> = master
            .query("SELECT l::text FROM shard_lookups() l", &[])
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect();
        panic!(
            "{} pairs, {} rows; too many: {extra:?}, missing: {missing:?}; {shown:?}",
            last.0.len(),
            last.1.len()
        );
    }
}

pub fn route(master: &mut Client, key: &str) -> String {
    let row = master.query_one("SELECT shard_key FROM shard_route($1, 'write', 'emails')", &[&key]);
    row.map_or_else(|error| state_of(&error).to_owned(), |row| row.get(0))
}

pub fn wait_route(master: &mut Client, key: &str, shard: &str) {
    wait::until(key, LIMIT, || Ok((route(master, key) == shard).then_some(()))).unwrap();
}

pub fn insert(from: u32, to: u32, tenant: &str) -> String {
    format!(
        "INSERT INTO users SELECT '{tenant}', i, '{tenant}' || i || '@x.org' FROM generate_series({from}, {to}) i"
    )
}

//! The tables of a history, and their final state.

use super::{Element, Key, Kind, SUM, Tenant};
use crate::Result;
use crate::cluster::{CLIENT, Cluster, OWNER};
use std::collections::BTreeMap;

pub const LISTS: i32 = 3;
pub const REGISTERS: i32 = 2;
pub const ACCOUNTS: i32 = 5;

/// The state when all clients had ended.
#[derive(Debug, Default)]
pub struct Last {
    pub lists: BTreeMap<Key, Vec<Element>>,
    pub registers: BTreeMap<Key, Element>,
    pub sums: BTreeMap<Tenant, i64>,
}

pub fn name(tenant: Tenant) -> String {
    format!("tenant {tenant}")
}

/// The strategy by which tenants are routed and moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Keys,
    Buckets,
}

/// There are few buckets, so that a bucket may contain more than the tenants that are to move.
const BUCKETS: i32 = 6;

impl Space {
    pub fn keyspace(self) -> &'static str {
        match self {
            Space::Keys => "default",
            Space::Buckets => "buckets",
        }
    }

    /// Returns the call that plans a split of tenants.
    pub fn plan(self, source: &str, target: &str, tenants: &[Tenant]) -> String {
        let names: Vec<String> = tenants.iter().map(|tenant| format!("'{}'", name(*tenant))).collect();
        let names = names.join(", ");
        match self {
            Space::Keys => format!("SELECT shard_split_plan('{source}', '{target}', ARRAY[{names}])"),
            Space::Buckets => format!(
                "SELECT shard_split_plan('{source}', '{target}', array_agg(DISTINCT shard_for(n, {BUCKETS})::text), keyspace => 'buckets')
                   FROM unnest(ARRAY[{names}]) n"
            ),
        }
    }
}

/// Creates the tables on both shards and registers them. The tenants' rows are on the first shard.
pub fn create(cluster: &Cluster, space: Space, tenants: usize) -> Result<()> {
    for shard in &cluster.shards {
        cluster.owner_of(shard)?.batch_execute(&format!(
            "SET ROLE {OWNER};
             CREATE TABLE lists (tenant text, id int, elements bigint[] NOT NULL, PRIMARY KEY (tenant, id));
             CREATE TABLE registers (tenant text, id int, value bigint NOT NULL, before bigint, PRIMARY KEY (tenant, id));
             CREATE TABLE accounts (tenant text, id int, balance bigint NOT NULL, PRIMARY KEY (tenant, id));
             GRANT SELECT, INSERT, UPDATE, DELETE ON lists, registers, accounts TO {CLIENT}"
        ))?;
    }
    let mut master = cluster.superuser()?;
    if space == Space::Buckets {
        let query =
            format!("SELECT shard_keyspace_add('buckets', 'hash', {BUCKETS}, shards => '{{shard_a}}')");
        master.batch_execute(&query)?;
    }
    for table in ["lists", "registers", "accounts"] {
        let query = "SELECT shard_table_add($1, 'tenant', $2, key_type => 'text')";
        master.execute(query, &[&table, &space.keyspace()])?;
    }
    let mut source = cluster.owner_of(&cluster.shards[0])?;
    for tenant in (0..tenants).map(name) {
        if space == Space::Keys {
            master.execute("SELECT shard_assign($1, 'shard_a')", &[&tenant])?;
        }
        let balance = SUM / i64::from(ACCOUNTS);
        source.batch_execute(&format!(
            "INSERT INTO lists SELECT '{tenant}', i, '{{}}' FROM generate_series(0, {LISTS} - 1) i;
             INSERT INTO registers SELECT '{tenant}', i, 0 FROM generate_series(0, {REGISTERS} - 1) i;
             INSERT INTO accounts SELECT '{tenant}', i, {balance} FROM generate_series(0, {ACCOUNTS} - 1) i"
        ))?;
    }
    Ok(())
}

/// Returns each tenant's rows from the shard that its route names.
pub fn last(cluster: &Cluster, space: Space, tenants: usize) -> Result<Last> {
    let mut last = Last::default();
    let mut master = cluster.superuser()?;
    for tenant in 0..tenants {
        let query = "SELECT shard_of($1, keyspace => $2)";
        let key: String = master.query_one(query, &[&name(tenant), &space.keyspace()])?.get(0);
        let shard = cluster.shards.iter().find(|shard| shard.key == key).ok_or("a route to no shard")?;
        let mut client = cluster.owner_of(shard)?;
        let mut rows = |query: &str| client.query(query, &[&name(tenant)]);
        for row in rows("SELECT id, elements FROM lists WHERE tenant = $1")? {
            last.lists.insert(Key { tenant, kind: Kind::List, id: row.get(0) }, row.get(1));
        }
        for row in rows("SELECT id, value FROM registers WHERE tenant = $1")? {
            last.registers.insert(Key { tenant, kind: Kind::Register, id: row.get(0) }, row.get(1));
        }
        let sum = rows("SELECT coalesce(sum(balance), 0)::bigint FROM accounts WHERE tenant = $1")?;
        last.sums.insert(tenant, sum.first().map_or(0, |row| row.get(0)));
    }
    Ok(last)
}

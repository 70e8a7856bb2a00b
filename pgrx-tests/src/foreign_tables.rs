//! Foreign tables of all shards. An operator has imported them, and an analyst reads them.

use crate::cluster::{Cluster, DATABASE};
use crate::queries::stage;
use postgres::{Client, SimpleQueryMessage};

/// Makes two shards, an operator who has imported their tables, and an analyst who may read them.
pub fn imported(config: &[&str]) -> Cluster {
    let cluster = stage(config);
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "CREATE ROLE dba LOGIN; SELECT shard_grant('dba', 'operator'), shard_login_set('dba', 'reader');
             CREATE SCHEMA shards AUTHORIZATION dba; GRANT USAGE ON SCHEMA shards TO PUBLIC",
        )
        .unwrap();
    import(&cluster, "shard_import()");
    dba(&cluster).batch_execute("GRANT SELECT ON ALL TABLES IN SCHEMA shards TO PUBLIC").unwrap();
    cluster
}

pub fn dba(cluster: &Cluster) -> Client {
    cluster.master.connect(DATABASE, "dba").unwrap()
}

/// Imports by a call, and returns its result for each table.
pub fn import(cluster: &Cluster, call: &str) -> Vec<(String, String)> {
    let rows = dba(cluster).query(&format!("SELECT * FROM {call}"), &[]).unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Returns the rows of a query as texts, in their order.
pub fn texts(client: &mut Client, query: &str) -> Vec<String> {
    let rows = client.simple_query(query).unwrap_or_else(|error| panic!("{query}: {error:?}"));
    let text = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => {
            let values: Vec<&str> = (0..row.len()).map(|column| row.get(column).unwrap_or("NULL")).collect();
            Some(values.join(" "))
        }
        _ => None,
    };
    rows.iter().filter_map(text).collect()
}

pub fn plan(client: &mut Client, query: &str) -> String {
    texts(client, &format!("EXPLAIN (VERBOSE, COSTS OFF) {query}")).join("\n")
}

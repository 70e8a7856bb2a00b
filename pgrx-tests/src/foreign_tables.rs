//! Foreign tables of all shards, which an operator has imported and an analyst reads.

use crate::cluster::{Cluster, DATABASE};
use crate::queries::stage;
use postgres::{Client, SimpleQueryMessage};

/// Two shards, an operator who has imported their tables, and an analyst who may read them.
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

/// What a call has made of each table.
pub fn import(cluster: &Cluster, call: &str) -> Vec<(String, String)> {
    let rows = dba(cluster).query(&format!("SELECT * FROM {call}"), &[]).unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// The rows of a query, as text and in their order.
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

//! Queries of all shards at once: two shards, which the role `analyst` queries as `reader`.

use crate::cluster::{Cluster, DATABASE};
use crate::fixture::{by_owner, by_superuser, cluster, state_of};
use crate::wait;
use postgres::Client;
use std::time::Duration;

pub fn stage(config: &[&str]) -> Cluster {
    let cluster = cluster(config);
    for server in 0..cluster.servers.len() {
        by_superuser(&cluster, server, "CREATE ROLE reader LOGIN");
        by_owner(&cluster, server, "GRANT SELECT ON items TO reader");
    }
    cluster
        .superuser()
        .unwrap()
        .batch_execute(
            "CREATE ROLE analyst LOGIN; CREATE ROLE nobody LOGIN; SELECT shard_grant('analyst', 'client'), shard_grant('nobody', 'client');
             SELECT shard_login_set('analyst', 'reader')",
        )
        .unwrap();
    cluster
}

pub fn analyst(cluster: &Cluster) -> Client {
    cluster.master.connect(DATABASE, "analyst").unwrap()
}

/// Returns the rows of a call as texts, sorted.
pub fn json(client: &mut Client, call: &str) -> Vec<String> {
    let rows = client.query(&format!("SELECT j::text FROM {call} AS j ORDER BY 1"), &[]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Returns SQLSTATE and message of a refused statement.
pub fn error(client: &mut Client, statement: &str) -> (String, String) {
    let error = client.query(statement, &[]).unwrap_err();
    let message = error.as_db_error().map_or(String::new(), |error| error.message().to_owned());
    (state_of(&error).to_owned(), message)
}

/// Returns the hint of a refused statement.
pub fn hint(client: &mut Client, statement: &str) -> String {
    let error = client.query(statement, &[]).unwrap_err();
    error.as_db_error().and_then(|error| error.hint()).unwrap_or_default().to_owned()
}

/// Waits until no shard works for the query any more, which is soon after its end.
pub fn nobody_works_on(cluster: &Cluster) {
    let query = "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name LIKE 'shardmaster query%'";
    for server in &cluster.servers {
        let mut client = server.superuser(DATABASE).unwrap();
        wait::until_true(&mut client, "the query to end", Duration::from_secs(10), query).unwrap();
    }
}

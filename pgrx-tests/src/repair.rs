//! Repair of rows on the wrong shard: the role `dba` of the master does it, as `mender` on the shards.

use crate::cluster::{Cluster, DATABASE};
use crate::fixture::{LIMIT, by_superuser, by_superusers, state_of};
use crate::wait;
use postgres::Client;
use std::thread;

/// Two servers whose tables the role `dba` of the master may change as `mender`. The rows of `moves` are on
/// the first server and are routed to the second.
pub fn stage(rows: u32) -> Cluster {
    let cluster = Cluster::servers(2, &["fsync = off", "shardmaster.tail_interval = 20"]).unwrap();
    by_superusers(
        &cluster,
        "CREATE ROLE mender LOGIN; GRANT USAGE, CREATE ON SCHEMA public TO mender, app_owner; SET ROLE app_owner;
         CREATE TABLE items (tenant text, id int, val text, PRIMARY KEY (tenant, id));
         GRANT SELECT, INSERT, UPDATE, DELETE ON items TO mender, app, mover",
    );
    by_superuser(
        &cluster,
        0,
        &format!(
            "INSERT INTO items SELECT t, i, 'v' || i FROM generate_series(1, {rows}) i, unnest('{{moves,stays}}'::text[]) t"
        ),
    );
    cluster
        .superuser()
        .unwrap()
        .batch_execute(
            "SELECT shard_table_add('items', 'tenant', key_type => 'text');
             SELECT shard_assign('stays', 'shard_a'), shard_assign('moves', 'shard_b');
             CREATE ROLE dba LOGIN; SELECT shard_grant('dba', 'operator'), shard_login_set('dba', 'mender')",
        )
        .unwrap();
    cluster
}

pub fn dba(cluster: &Cluster) -> Client {
    cluster.master.connect(DATABASE, "dba").unwrap()
}

pub const MOVE: &str = "CALL shard_misplaced_move('shard_a', '{moves}')";
pub const DELETE: &str = "CALL shard_misplaced_delete('shard_a', '{moves}')";

pub const DELETE_ALL: &str = "CALL shard_misplaced_delete('shard_a', '{moves}', rows => 'all')";
pub const DELETE_CONFLICTING: &str =
    "CALL shard_misplaced_delete('shard_a', '{moves}', rows => 'conflicting')";

pub fn number(cluster: &Cluster, server: usize, query: &str) -> i64 {
    cluster.servers[server].superuser(DATABASE).unwrap().query_one(query, &[]).unwrap().get(0)
}

/// Returns the numbers of rows of the key that moves and of the key that stays, on both servers.
pub fn counts(cluster: &Cluster) -> [i64; 4] {
    let of = |server, tenant: &str| {
        number(cluster, server, &format!("SELECT count(*) FROM items WHERE tenant = '{tenant}'"))
    };
    [of(0, "moves"), of(1, "moves"), of(0, "stays"), of(1, "stays")]
}

/// Returns what a run has done, as one text.
pub fn report(cluster: &Cluster, run: i64) -> String {
    let query = format!(
        "SELECT coalesce(string_agg(concat_ws(' ', action, state, table_name, moved, deleted, sqlstate), ', '), 'none')
           FROM shard_misplaced_runs({run})"
    );
    dba(cluster).query_one(&query, &[]).unwrap().get(0)
}

/// Makes a call in a session of its own. The thread returns its error, if it fails.
pub fn in_background(cluster: &Cluster, call: &str) -> thread::JoinHandle<Option<(String, String)>> {
    let (mut caller, call) = (dba(cluster), call.to_owned());
    thread::spawn(move || {
        let error = caller.batch_execute(&call).err()?;
        let message = error.as_db_error().map_or(String::new(), |error| error.message().to_owned());
        Some((state_of(&error).to_owned(), message))
    })
}

pub fn wait_held(cluster: &Cluster, point: &str) {
    let query =
        format!("SELECT count(*) > 0 FROM pg_stat_activity WHERE query = 'held at point \"{point}\"'");
    wait::until_true(&mut cluster.superuser().unwrap(), point, LIMIT, &query).unwrap();
}

/// Holds a call at a point, runs `happens` meanwhile, and returns the call's error, if it fails.
pub fn while_held(
    cluster: &mut Cluster,
    point: &str,
    call: &str,
    happens: impl FnOnce(&mut Cluster),
) -> Option<(String, String)> {
    cluster.hold(point).unwrap();
    let call = in_background(cluster, call);
    wait_held(cluster, point);
    happens(cluster);
    cluster.fault("").unwrap();
    call.join().unwrap()
}

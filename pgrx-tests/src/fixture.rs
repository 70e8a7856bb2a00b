//! A small fixture for tests of single rules: two servers and one table. Half of its rows belong to the
//! tenant that moves.

use crate::Error;
use crate::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use crate::env::is_long_run;
use crate::split::Split;
use crate::workload::{Mix, Options, Sharding, Workload};
use postgres::Client;
use std::collections::BTreeMap;
use std::time::Duration;

pub const LIMIT: Duration = Duration::from_secs(180);

/// A load with all kinds of writes to the rows of eight tenants. The writers leave some processor time to the
/// split, because a longer split does not make the test better.
pub fn load(sharding: Sharding) -> Options {
    Options {
        rows: if is_long_run() { 16_000 } else { 10_000 },
        pause: Duration::from_millis(6),
        mix: Mix { special: 25, retenant: true },
        sharding,
        ..Options::tenants(8)
    }
}

/// Runs a load while each of the plans is carried out. Each plan's query runs after the earlier splits have finished.
pub fn splits_under_load(cluster: &Cluster, sharding: Sharding, plans: &[&str]) {
    const LIMIT: Duration = Duration::from_secs(300);
    let mut workload = Workload::prepare(cluster, load(sharding)).unwrap();
    workload.start();
    workload.wait_for(500, LIMIT).unwrap();
    for plan in plans {
        let split = Split::plan_by(cluster, plan).unwrap();
        split.run(|_| ()).unwrap();
        workload.wait_for(300, LIMIT).unwrap();
        split.finish(LIMIT).unwrap();
        workload.wait_for(300, LIMIT).unwrap();
    }
    workload.stop().unwrap();
    let report = workload.report(cluster).unwrap();
    report.keep();
    assert!(report.is_clean(), "{report}");
}

/// Makes two servers with the table that `definition` creates.
pub fn cluster_of(config: &[&str], definition: &str) -> Cluster {
    let mut lines = vec!["fsync = off", "max_prepared_transactions = 5", "shardmaster.tail_interval = 20"];
    lines.extend_from_slice(config);
    let cluster = Cluster::servers(2, &lines).unwrap();
    for shard in &cluster.shards {
        let mut owner = cluster.owner_of(shard).unwrap();
        owner
            .batch_execute(&format!(
                "SET ROLE {OWNER}; {definition};
                 GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON items TO {CLIENT};
                 RESET ROLE"
            ))
            .unwrap();
    }
    source(&cluster)
        .batch_execute(
            "INSERT INTO items SELECT CASE i % 2 WHEN 0 THEN 'moves' ELSE 'stays' END, i, i::text, i
               FROM generate_series(1, 600) i",
        )
        .unwrap();
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_table_add('items', 'tenant', key_type => 'text');
             SELECT shard_assign_many(ARRAY['moves', 'stays'], 'shard_a')",
        )
        .unwrap();
    cluster
}

/// Makes two servers and a table of 600 rows.
pub fn cluster(config: &[&str]) -> Cluster {
    cluster_of(
        config,
        "CREATE TABLE items (tenant text, id int, val text, code int,
                             PRIMARY KEY (tenant, id), UNIQUE (tenant, code) DEFERRABLE)",
    )
}

/// Drops the deferrable constraint, because a computed column cannot be part of one.
pub fn let_code_be_computed(cluster: &Cluster) {
    by_superusers(cluster, "ALTER TABLE items DROP CONSTRAINT items_tenant_code_key");
}

/// Opens a superuser's session on the source.
pub fn source(cluster: &Cluster) -> Client {
    cluster.servers[0].superuser(DATABASE).unwrap()
}

/// Runs statements as a superuser on a server.
pub fn by_superuser(cluster: &Cluster, server: usize, statements: &str) {
    let outcome = cluster.servers[server].superuser(DATABASE).unwrap().batch_execute(statements);
    outcome.map_err(|error| Error::from(error).context(statements)).unwrap();
}

/// Runs statements as a superuser on every server.
pub fn by_superusers(cluster: &Cluster, statements: &str) {
    (0..cluster.servers.len()).for_each(|server| by_superuser(cluster, server, statements));
}

/// Runs statements as the tables' owner on a server. `RESET ROLE` makes the session a superuser's again.
pub fn by_owner(cluster: &Cluster, server: usize, statements: &str) {
    by_superuser(cluster, server, &format!("SET ROLE {OWNER}; {statements}"));
}

/// Opens an ordinary client's session on the source.
pub fn client(cluster: &Cluster) -> Client {
    cluster.servers[0].connect(DATABASE, CLIENT).unwrap()
}

pub fn plan(cluster: &Cluster) -> Split<'_> {
    Split::plan(cluster, "shard_a", "shard_b", &["moves"]).unwrap()
}

pub fn to_pending(split: &Split<'_>) {
    split.call("start_dual_write").unwrap();
    split.call("run_backfill").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
}

/// Returns a split whose cutover has decided.
pub fn completed(cluster: &Cluster) -> Split<'_> {
    let split = plan(cluster);
    to_pending(&split);
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    split
}

/// Returns the moving tenant's rows on a server.
pub fn rows(cluster: &Cluster, server: usize) -> BTreeMap<i32, String> {
    let mut client = cluster.servers[server].superuser(DATABASE).unwrap();
    let rows = client.query("SELECT id, val || ' ' || code FROM items WHERE tenant = 'moves'", &[]).unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Makes a change while the next step is about to begin, and then lets the step continue.
pub fn before_the_next_step(cluster: &Cluster, split: &Split<'_>, change: impl FnOnce()) {
    split.wait_settled(LIMIT).unwrap();
    cluster.hold("step_begin").unwrap();
    split.wait_held("step_begin", LIMIT).unwrap();
    change();
    client(cluster)
        .batch_execute("UPDATE items SET val = val || 'y' WHERE tenant = 'moves' AND id = 2")
        .unwrap();
    cluster.fault("").unwrap();
}

/// Cuts over, and checks that the target holds exactly the source's rows.
pub fn cut_over_and_compare(cluster: &Cluster, split: &Split<'_>) {
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    assert_eq!(rows(cluster, 0), rows(cluster, 1));
    // A copy of many small steps was wanted. The finish of as many would take several times as long.
    cluster.set("shardmaster.step_time", "1s").unwrap();
    split.finish(LIMIT).unwrap();
    assert!(rows(cluster, 0).is_empty());
    let stays = source(cluster).query_one("SELECT count(*) FROM items WHERE tenant = 'stays'", &[]).unwrap();
    assert!(stays.get::<_, i64>(0) <= 300);
}

pub fn state_of(error: &postgres::Error) -> &str {
    error.code().map_or("none", postgres::error::SqlState::code)
}

/// Restores the catalog to its state before the split, like pg_restore does.
pub fn forget_splits(master: &mut Client) {
    master
        .batch_execute(
            "BEGIN;
             DELETE FROM shardmaster.split_event; DELETE FROM shardmaster.split_cutover; DELETE FROM shardmaster.split_settle; DELETE FROM shardmaster.split_key; DELETE FROM shardmaster.redirect;
             DELETE FROM shardmaster.split_table; DELETE FROM shardmaster.split_progress;
             DELETE FROM shardmaster.split_ledger;
             DELETE FROM shardmaster.split_plan;
             SELECT setval('shardmaster.split_plan_id_seq', 1, false);
             COMMIT",
        )
        .unwrap();
}

/// Runs a split from its plan to its finish.
pub fn finished(split: &Split<'_>) {
    split.run(|_| ()).unwrap();
    split.finish(LIMIT).unwrap();
}

/// Returns "ok", or the SQLSTATE of a refused statement.
pub fn outcome(client: &mut Client, statement: &str) -> String {
    match client.batch_execute(statement) {
        Ok(()) => "ok".to_owned(),
        Err(error) => {
            let state = state_of(&error).to_owned();
            let _ = client.batch_execute("ROLLBACK");
            state
        }
    }
}

/// Returns an INSERT of a row into the table `items`.
pub fn insert(tenant: &str, id: i32) -> String {
    format!("INSERT INTO items VALUES ('{tenant}', {id}, 'x', {id})")
}

/// Restores the master to its state before the cutover of its only split, without anything that followed.
/// `plan` sets more columns of the split's plan, as a restored catalog would have them.
pub fn forget_decision(master: &mut Client, plan: &str) {
    let version: i64 = master.query_one("SELECT shard_routing_version()", &[]).unwrap().get(0);
    master
        .batch_execute(&format!(
            "BEGIN;
             DELETE FROM shardmaster.routing_entry WHERE valid_from = {version};
             UPDATE shardmaster.routing_entry SET valid_to = NULL WHERE valid_to = {version};
             DELETE FROM shardmaster.routing_version WHERE version = {version};
             UPDATE shardmaster.split_plan SET phase = 'cutover_pending', cutover_step = 'none',
                    routing_version_cutover = NULL, cutover_at = NULL, finished_at = NULL, purged_at = NULL, {plan}
              WHERE reverse_of IS NULL;
             UPDATE shardmaster.split_plan SET phase = 'planning', goal = 'planning' WHERE reverse_of IS NOT NULL;
             UPDATE shardmaster.split_key k SET active = reverse_of IS NULL FROM shardmaster.split_plan p WHERE p.id = k.split_id;
             UPDATE shardmaster.split_ledger SET removed_at = NULL;
             COMMIT"
        ))
        .unwrap();
}

/// Opens a session that the split takes for its own worker's, so no trigger captures its writes.
pub fn as_worker(cluster: &Cluster, split: &Split<'_>, server: usize) -> Client {
    let query = "SELECT secret FROM shardmaster.split_plan WHERE id = $1";
    let secret: String = cluster.superuser().unwrap().query_one(query, &[&split.id]).unwrap().get(0);
    let mut session = cluster.servers[server].superuser(DATABASE).unwrap();
    session
        .batch_execute(&format!(
            "SET shardmaster_agent.mover = '{secret}'; SET session_replication_role = replica"
        ))
        .unwrap();
    session
}

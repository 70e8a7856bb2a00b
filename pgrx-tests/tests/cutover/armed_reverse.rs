//! Armed reverse splits on a shard are removed if no master knows them any more. Another test covers an armed
//! reverse split whose queue has become full.

use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use shardmaster_tests::fixture::{
    self, LIMIT, as_worker, by_superuser, cluster_of, completed, finished, rows,
};
use shardmaster_tests::split::Split;
use shardmaster_tests::verification::verify;

const ON: &str = "shardmaster.reverse = on";

fn reverse<'a>(cluster: &'a Cluster, split: &Split<'_>) -> Split<'a> {
    let query = "SELECT shard_split_reverse($1)";
    Split::of(cluster, cluster.superuser().unwrap().query_one(query, &[&split.id]).unwrap().get(0))
}

/// The reverse split of a reverse split is found where the latter is armed, by the same secret.
#[test]
#[ignore = "make test-all: schemas of one database; make test has one_that_was_forgotten_goes_with_the_next_one"]
fn schemas_of_one_database_keep_theirs() {
    let cluster = Cluster::namespaces(2, &[ON]).unwrap();
    for shard in &cluster.shards {
        let table = format!(
            "SET ROLE {OWNER}; CREATE TABLE items (tenant text, id int, PRIMARY KEY (tenant, id)); GRANT ALL ON items TO {CLIENT}"
        );
        cluster.owner_of(shard).unwrap().batch_execute(&table).unwrap();
    }
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_table_add('items', 'tenant', key_type => 'text'), shard_assign_many('{moves,stays}', 'shard_a');
             INSERT INTO shard_a.items SELECT t, i FROM generate_series(1, 100) i, unnest('{moves,stays}'::text[]) t",
        )
        .unwrap();
    let mut split = Split::plan(&cluster, "shard_a", "shard_b", &["moves"]).unwrap();
    split.run(|_| ()).unwrap();
    for (round, [from, to]) in [["shard_b", "shard_a"], ["shard_a", "shard_b"]].into_iter().enumerate() {
        let change = format!("DELETE FROM {from}.items WHERE tenant = 'moves' AND id = {}", round + 1);
        cluster.client().unwrap().batch_execute(&change).unwrap();
        let back = reverse(&cluster, &split);
        split.wait("reversed", LIMIT).unwrap();
        back.wait("completed", LIMIT).unwrap();
        let rows = format!("SELECT count(*) FROM {to}.items WHERE tenant = 'moves'");
        assert_eq!(master.query_one(&rows, &[]).unwrap().get::<_, i64>(0), 99 - round as i64);
        split = back;
    }
    split.finish(LIMIT).unwrap();
}

/// Returns the numbers of the armed reverse splits on the target.
fn resting(cluster: &Cluster) -> Vec<i64> {
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    let known = "SELECT to_regclass('shardmaster_agent.side') IS NOT NULL";
    if !target.query_one(known, &[]).unwrap().get::<_, bool>(0) {
        return Vec::new();
    }
    let query = "SELECT split_id FROM shardmaster_agent.side WHERE side = 'source' ORDER BY 1";
    let rows = target.query(query, &[]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Counts the triggers of a split on the target.
fn captures(cluster: &Cluster, split: i64) -> i64 {
    let query = format!("SELECT count(*) FROM pg_trigger WHERE tgname LIKE '00\\_shardmaster\\_{split}\\_%'");
    cluster.servers[1].superuser(DATABASE).unwrap().query_one(&query, &[]).unwrap().get(0)
}

/// Restores the master to its state before it had planned the splits. It then assigns the same numbers again.
fn forget(cluster: &Cluster, back: i64) {
    let forget = ["split_event", "split_key", "split_table", "split_progress", "split_ledger"]
        .map(|table| format!("DELETE FROM shardmaster.{table} WHERE split_id = {back};"))
        .concat();
    let forget = format!("BEGIN; {forget} DELETE FROM shardmaster.split_plan WHERE id = {back}; COMMIT");
    cluster.superuser().unwrap().batch_execute(&forget).unwrap();
}

#[test]
#[ignore = "make test-all: the end of its own split; make test has one_that_was_forgotten_goes_with_the_next_one"]
fn one_that_a_restored_master_has_forgotten_goes_with_its_split() {
    let cluster = fixture::cluster(&[ON]);
    let split = completed(&cluster);
    assert_eq!(resting(&cluster), [split.id + 1]);
    forget(&cluster, split.id + 1);
    assert!(captures(&cluster, split.id + 1) > 0);
    split.finish(LIMIT).unwrap();
    assert!(resting(&cluster).is_empty(), "{:?}", resting(&cluster));
    // Nobody's writes are captured for it.
    assert_eq!(captures(&cluster, split.id + 1), 0);
    finished(&Split::plan(&cluster, "shard_b", "shard_a", &["moves"]).unwrap());
}

/// It is planned again, with another number.
#[test]
fn one_that_was_forgotten_goes_with_the_next_one() {
    let cluster = fixture::cluster(&[ON, "shardmaster.queue_max_size = '1GB'"]);
    let split = fixture::plan(&cluster);
    cluster.hold("install_done").unwrap();
    split.call("start_dual_write").unwrap();
    split.wait_held("install_done", LIMIT).unwrap();
    let forgotten = split.id + 1;
    assert_eq!(resting(&cluster), [forgotten]);
    forget(&cluster, forgotten);
    cluster.superuser().unwrap().batch_execute("SELECT nextval('shardmaster.split_plan_id_seq')").unwrap();
    // Its worker starts over.
    let end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE backend_type LIKE 'shardmaster split %'";
    cluster.superuser().unwrap().batch_execute(end).unwrap();
    cluster.fault("").unwrap();
    split.call("run_backfill").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    let now = resting(&cluster);
    assert!(now.len() == 1 && now[0] > forgotten, "{now:?}");
    finished(&split);
}

/// Makes a cluster with a small queue, and with enough rows to fill it.
fn soon_full() -> Cluster {
    let cluster = cluster_of(
        &["shardmaster.queue_max_size = '1MB'"],
        "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (tenant, id))",
    );
    let more = "INSERT INTO items SELECT 'moves', i, 'v', i FROM generate_series(10001, 40000) i";
    by_superuser(&cluster, 0, more);
    cluster
}

const FILLS: &str = "UPDATE items SET val = 'new' WHERE tenant = 'moves' AND id > 10000";

/// Changes a row on the target, as if a change of it had never been applied.
const LOST: &str = "UPDATE items SET val = 'lost' WHERE tenant = 'moves' AND id = 100";

/// A reverse split that has to copy everything would replace correct rows by others that nobody has compared.
#[test]
#[ignore = "make test-all: a full queue; make test has cutover::reverse_disrupted::a_table_that_is_copied_again_was_compared_first"]
fn one_that_was_full_replaces_no_row_that_nobody_has_compared() {
    let cluster = soon_full();
    let split = completed(&cluster);
    as_worker(&cluster, &split, 1).batch_execute(LOST).unwrap();
    let mut client = cluster.servers[1].connect(DATABASE, CLIENT).unwrap();
    client.batch_execute(FILLS).unwrap();
    let right = rows(&cluster, 0);
    let back = reverse(&cluster, &split);
    let refused = back.failure(LIMIT).unwrap();
    let unseen = "all rows of items on shard \"shard_a\" would be replaced by those of shard \"shard_b\", and were not compared";
    assert!(refused.contains(unseen) && refused.contains("the queue of changes was full"), "{refused}");
    assert_eq!(rows(&cluster, 0), right);
    // Requested in the same way, it is refused again. It needs the operator's consent, which is kept.
    reverse(&cluster, &split);
    assert!(back.failure(LIMIT).unwrap().contains(unseen));
    assert_eq!(rows(&cluster, 0), right);
    let expected = rows(&cluster, 1);
    let query = "SELECT shard_split_reverse($1, copy_again => true)";
    cluster.superuser().unwrap().execute(query, &[&split.id]).unwrap();
    split.wait("reversed", LIMIT).unwrap();
    back.wait("completed", LIMIT).unwrap();
    assert_eq!(rows(&cluster, 0), expected);
    assert!(split.events().unwrap().contains("with a copy if needed"));
}

/// Rows that were compared since the cutover may be replaced without the operator's consent.
#[test]
#[ignore = "make test-all: one that was compared; make test has cutover::reverse_disrupted::a_table_that_is_copied_again_was_compared_first"]
fn one_that_was_compared_before_it_was_full_is_copied() {
    let cluster = soon_full();
    let split = completed(&cluster);
    assert_eq!(verify(&split)[0].status, "passed");
    cluster.servers[1].connect(DATABASE, CLIENT).unwrap().batch_execute(FILLS).unwrap();
    let expected = rows(&cluster, 1);
    let back = reverse(&cluster, &split);
    split.wait("reversed", LIMIT).unwrap();
    back.wait("completed", LIMIT).unwrap();
    assert_eq!(rows(&cluster, 0), expected);
}

/// A reverse split that has to copy everything would replace correct rows by rows that were found to differ.
#[test]
#[ignore = "make test-all: one that differs; make test has cutover::reverse_disrupted::a_table_that_is_copied_again_was_compared_first"]
fn one_that_was_full_replaces_no_row_that_was_found_to_differ() {
    let cluster = soon_full();
    let split = completed(&cluster);
    as_worker(&cluster, &split, 1).batch_execute(LOST).unwrap();
    assert_eq!(verify(&split)[0].differing, 1);
    let mut client = cluster.servers[1].connect(DATABASE, CLIENT).unwrap();
    client.batch_execute(FILLS).unwrap();
    let right = rows(&cluster, 0);
    let back = reverse(&cluster, &split);
    let refused = back.failure(LIMIT).unwrap();
    assert!(refused.contains("1 rows of items are not on shard \"shard_b\" as they were"), "{refused}");
    assert_eq!(rows(&cluster, 0), right);
    let goes_on = "UPDATE items SET val = 'goes on' WHERE tenant = 'moves' AND id = 102";
    client.batch_execute(goes_on).unwrap();
    back.call("rollback").unwrap();
    back.wait("rolled_back", LIMIT).unwrap();
    assert_eq!(rows(&cluster, 0), right);
    split.finish_accepting(LIMIT).unwrap();
}

//! Changes of the source's tables that a split makes on its target as well: `on_ddl => 'replay'`.

use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{LIMIT, by_owner, cluster_of, load, plan, state_of};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use shardmaster_tests::workload::{Sharding, Workload};
use std::time::Duration;

const TABLE: &str =
    "CREATE TABLE items (tenant text, id int, val varchar(40) NOT NULL, code int, PRIMARY KEY (tenant, id))";

fn start(split: &Split<'_>, on_ddl: &str) -> Result<(), postgres::Error> {
    let call = format!("SELECT shard_split_start_dual_write({}, on_ddl => {on_ddl})", split.id);
    split.superuser().unwrap().batch_execute(&call)
}

/// Its changes are replayed, and all is copied.
fn pending(cluster: &Cluster) -> Split<'_> {
    let split = plan(cluster);
    assert_eq!(state_of(&start(&split, "'always'").unwrap_err()), "22023");
    start(&split, "'replay'").unwrap();
    split.call("run_backfill").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    split
}

/// All rows of the moving keys, with all that they hold.
fn rows(cluster: &Cluster, server: usize, table: &str) -> Vec<String> {
    let query = format!(
        "SELECT to_jsonb(t)::text FROM {table} t WHERE to_jsonb(t)::text ~ '\"(moves|tenant-0[0-9]*[02468])\"' ORDER BY 1"
    );
    let rows = cluster.servers[server].superuser(DATABASE).unwrap().query(&query, &[]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Columns with their types, and those that are NOT NULL.
fn columns(cluster: &Cluster, server: usize) -> String {
    let query = "SELECT string_agg(format('%s %s%s', attname, format_type(atttypid, atttypmod), CASE WHEN attnotnull THEN ' !' END), ', ' ORDER BY attname)
                   FROM pg_attribute WHERE attrelid = 'items'::regclass AND attnum > 0 AND NOT attisdropped";
    cluster.servers[server].superuser(DATABASE).unwrap().query_one(query, &[]).unwrap().get(0)
}

fn until_alike(cluster: &Cluster, split: &Split<'_>, what: &str) {
    wait::until("both sides to be alike", LIMIT, || {
        Ok((rows(cluster, 0, "items") == rows(cluster, 1, "items")).then_some(()))
    })
    .map_err(|e| format!("{what}: {e}; {}; {}", split.describe(), split.events().unwrap_or_default()))
    .unwrap();
}

fn ends(cluster: &Cluster, split: &Split<'_>) {
    wait::until("the cutover", LIMIT, || {
        let _ = split.call("cutover");
        Ok(split.wait("completed", Duration::from_secs(3)).ok())
    })
    .unwrap();
    let expected = rows(cluster, 1, "items");
    assert_eq!(rows(cluster, 0, "items"), expected);
    split.finish(LIMIT).unwrap();
    assert_eq!(rows(cluster, 1, "items"), expected);
}

#[test]
fn columns_change_on_the_target_as_on_the_source() {
    let cluster = cluster_of(&[], TABLE);
    let split = pending(&cluster);
    for (n, change) in [
        "ADD COLUMN more int",
        "RENAME COLUMN code TO \"the Code\"",
        "ALTER COLUMN val TYPE text",
        "ALTER COLUMN val DROP NOT NULL",
        "ADD COLUMN at timestamp(3) with time zone, ADD COLUMN tags text[], ADD COLUMN amount numeric(12,2)",
        "DROP COLUMN more",
    ]
    .into_iter()
    .enumerate()
    {
        by_owner(&cluster, 0, &format!("ALTER TABLE items {change}"));
        // An array is none of the types that are brought over.
        if change.contains("tags") {
            let text = "column \"tags\"";
            wait::until("the array to be waited for", LIMIT, || {
                let waits: Option<String> = split.metric("waiting_for")?;
                Ok(waits.is_some_and(|waits| waits.contains("tags")).then_some(()))
            })
            .map_err(|e| format!("{text}: {e}; {}", split.describe()))
            .unwrap();
            by_owner(&cluster, 1, "ALTER TABLE items ADD COLUMN tags text[]");
        }
        by_owner(
            &cluster,
            0,
            &format!("UPDATE items SET val = 'change {n}' WHERE tenant = 'moves' AND id = {n}"),
        );
        if change == "DROP COLUMN more" {
            // What is on the target is not destroyed: it is the target's own from now on.
            split.wait_for_event("column \"more\" was dropped", LIMIT).unwrap();
            by_owner(&cluster, 1, "ALTER TABLE items DROP COLUMN more");
        }
        until_alike(&cluster, &split, change);
        wait::until("the columns to be alike", LIMIT, || {
            Ok((columns(&cluster, 0) == columns(&cluster, 1)).then_some(()))
        })
        .map_err(|e| format!("{change}: {e}; {}; {}", split.describe(), columns(&cluster, 1)))
        .unwrap();
    }
    let events = split.events().unwrap();
    assert_eq!(
        events.matches("done on shard \"shard_b\", as on shard \"shard_a\": ALTER TABLE").count(),
        5,
        "{events}"
    );
    assert!(!events.contains("copied again"), "{events}");
    ends(&cluster, &split);
}

/// What does not mean the same on the target is for its operator.
#[test]
fn what_is_not_certain_is_waited_for() {
    let cluster = cluster_of(&[], TABLE);
    let split = pending(&cluster);
    by_owner(&cluster, 0, "ALTER TABLE items ADD COLUMN more int DEFAULT 7");
    let waits = || -> shardmaster_tests::Result<Option<()>> {
        let waits: Option<String> = split.metric("waiting_for")?;
        Ok(waits.is_some_and(|waits| waits.contains("more")).then_some(()))
    };
    wait::until("the default to be waited for", LIMIT, waits).unwrap();
    assert!(!columns(&cluster, 1).contains("more"));
    by_owner(&cluster, 1, "ALTER TABLE items ADD COLUMN more int DEFAULT 7");
    until_alike(&cluster, &split, "a default");
    // Somebody has made a view of it there.
    by_owner(&cluster, 1, "CREATE VIEW items_of_b AS SELECT val FROM items");
    by_owner(&cluster, 0, "ALTER TABLE items ALTER COLUMN val TYPE text");
    wait::until("the refusal to be told", LIMIT, || {
        let waits: Option<String> = split.metric("waiting_for")?;
        Ok(waits.is_some_and(|waits| waits.contains("used by a view")).then_some(()))
    })
    .map_err(|e| format!("{e}; {}", split.describe()))
    .unwrap();
    by_owner(&cluster, 1, "DROP VIEW items_of_b");
    by_owner(&cluster, 0, "UPDATE items SET val = repeat('x', 60) WHERE tenant = 'moves' AND id = 3");
    until_alike(&cluster, &split, "a view");
    ends(&cluster, &split);
}

/// Once each, whenever the worker ends.
#[test]
fn a_change_is_made_once() {
    let cluster = cluster_of(&[], TABLE);
    let split = pending(&cluster);
    for (n, kind) in ["kill", "error", "exit"].into_iter().enumerate() {
        cluster.fault(&format!("reshape_replayed={kind}")).unwrap();
        by_owner(&cluster, 0, &format!("ALTER TABLE items ADD COLUMN more_{n} int"));
        by_owner(&cluster, 0, &format!("UPDATE items SET more_{n} = id WHERE id % 3 = 0"));
        // A killed worker takes the master down for a moment.
        let went_on = || -> shardmaster_tests::Result<bool> {
            let fired = "SELECT count(*) FROM shardmaster.fault_fired";
            let count: i64 = cluster.superuser()?.query_one(fired, &[])?.get(0);
            if count == n as i64 + 1 {
                cluster.fault("")?;
            }
            Ok(count == n as i64 + 1)
        };
        wait::until("the point", LIMIT, || Ok(went_on().unwrap_or(false).then_some(()))).unwrap();
        until_alike(&cluster, &split, kind);
    }
    assert!(!split.events().unwrap().contains("copied again"));
    ends(&cluster, &split);
}

/// Everything that a writer can do, while its tables change before the copy, behind it, and with
/// the fence a moment away.
#[test]
fn an_application_migrates_its_source_alone() {
    let cluster = Cluster::servers(2, &["fsync = off", "shardmaster.tail_interval = 20"]).unwrap();
    let mut workload = Workload::prepare(&cluster, load(Sharding::Directory(vec![0; 8]))).unwrap();
    let options = workload.options().clone();
    let tenants = options.moving_names();
    let migrate = |change: &str| by_owner(&cluster, 0, change);
    let note = |column: &str, text: &str| {
        let update = format!(
            "UPDATE orders SET {column} = '{text}' || ref WHERE tenant_id = 'tenant-00' AND ref % 10 = 3"
        );
        wait::until("the notes", LIMIT, || {
            let done = cluster.servers[0].superuser(DATABASE)?.execute(&update, &[]);
            Ok(done.ok().filter(|rows| *rows > 0))
        })
        .unwrap();
    };
    workload.start();
    let split = Split::plan(&cluster, "shard_a", "shard_b", &tenants).unwrap();
    cluster.hold("backfill_begin").unwrap();
    start(&split, "'replay'").unwrap();
    split.call("run_backfill").unwrap();
    split.wait_held("backfill_begin", LIMIT).unwrap();
    migrate("ALTER TABLE orders ADD COLUMN note varchar(40)");
    note("note", "first ");
    cluster.fault("").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    migrate("ALTER TABLE accounts ADD COLUMN grade int");
    migrate("ALTER TABLE orders RENAME COLUMN note TO remark");
    note("remark", "second ");
    split.wait_settled(LIMIT).unwrap();
    cluster.hold("cutover_begin").unwrap();
    split.call("cutover").unwrap();
    split.wait_held("cutover_begin", LIMIT).unwrap();
    migrate("ALTER TABLE orders ALTER COLUMN remark TYPE text");
    note("remark", "third and last ");
    cluster.hold("cutover_decided").unwrap();
    split.wait_held("cutover_decided", LIMIT).unwrap();
    for table in ["orders", "accounts"] {
        let (here, there) = (rows(&cluster, 0, table), rows(&cluster, 1, table));
        assert!(here == there, "{table}: {} and {} rows", here.len(), there.len());
        assert!(!here.is_empty());
    }
    cluster.fault("").unwrap();
    split.wait("completed", LIMIT).unwrap();
    let last = "SELECT count(*) FROM orders WHERE remark LIKE 'third and last%'";
    let many: i64 = cluster.servers[1].superuser(DATABASE).unwrap().query_one(last, &[]).unwrap().get(0);
    assert!(many > 0);
    workload.wait_for(300, LIMIT).unwrap();
    split.finish(LIMIT).unwrap();
    workload.stop().unwrap();
    let report = workload.report(&cluster).unwrap();
    assert!(report.is_clean(), "{report}");
}

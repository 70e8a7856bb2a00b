//! Comparisons beside what else goes on: a cutover, other splits.

use shardmaster_tests::cluster::{CLIENT, DATABASE};
use shardmaster_tests::fixture::{LIMIT, cluster, cluster_of, plan, to_pending};
use shardmaster_tests::split::Split;
use shardmaster_tests::verification::{outcome, passed, verify};
use shardmaster_tests::wait;
use std::time::{Duration, Instant};

/// One that the cutover has overtaken goes on behind it, where rows that only the target has are
/// its clients'.
#[test]
fn a_verification_that_the_cutover_has_overtaken_goes_on() {
    let cluster = cluster_of(
        &[],
        "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (tenant, id))",
    );
    let split = plan(&cluster);
    to_pending(&split);
    assert_eq!(verify(&split), passed(300));
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    let mut client = cluster.servers[1].connect(DATABASE, CLIENT).unwrap();
    client.batch_execute("INSERT INTO items VALUES ('moves', 9999, 'more', 1)").unwrap();
    let half = r#"UPDATE shardmaster.split_verification
                     SET status = 'running', position = '{"read": "target", "done": [], "leaf": null, "block": 0}'"#;
    cluster.superuser().unwrap().batch_execute(half).unwrap();
    cluster.superuser().unwrap().execute("SELECT shard_split_resume($1)", &[&split.id]).unwrap();
    assert_eq!(outcome(&split), passed(300));
}

/// Completed splits are looked after by one worker beside the others: a comparison, which may take
/// hours, is none of its work, so that a source which loses its fence is fenced again meanwhile.
#[test]
fn a_verification_keeps_no_other_split_from_being_watched() {
    let cluster = cluster(&["shardmaster.max_split_workers = 1", "shardmaster.watch_interval = '1s'"]);
    let splits = ["moves", "stays"].map(|key| Split::plan(&cluster, "shard_a", "shard_b", &[key]).unwrap());
    for split in &splits {
        to_pending(split);
        split.call("cutover").unwrap();
        split.wait("completed", LIMIT).unwrap();
    }
    // The comparison waits for as long as somebody has the table.
    let mut holder = cluster.servers[1].superuser(DATABASE).unwrap();
    holder.batch_execute("BEGIN; LOCK TABLE items").unwrap();
    splits[0].call("verify").unwrap();
    wait::until("the comparison to wait", LIMIT, || {
        Ok((splits[0].metric::<String>("activity")? == "retrying").then_some(()))
    })
    .unwrap();
    let forget =
        format!("UPDATE shardmaster_agent.side SET state = 'capture' WHERE split_id = {}", splits[1].id);
    let mut source = cluster.servers[0].superuser(DATABASE).unwrap();
    source.batch_execute(&forget).unwrap();
    wait::until("the other split's source to be told", LIMIT, || {
        Ok(splits[1].events()?.contains("told again").then_some(()))
    })
    .unwrap();
    let query = "SELECT status FROM shard_split_verification($1)";
    let status: String = splits[0].superuser().unwrap().query_one(query, &[&splits[0].id]).unwrap().get(0);
    assert_eq!(status, "pending", "somebody has the table all the time");
    holder.batch_execute("COMMIT").unwrap();
    assert_eq!(outcome(&splits[0])[0].status, "passed");
}

/// Both servers have other work than to be compared.
#[test]
fn a_verification_keeps_to_its_rate_before_the_cutover() {
    let cluster = cluster_of(
        &["shardmaster.step_time = 100", "shardmaster.max_copy_rate = 20000"],
        "CREATE TABLE items (tenant text, id numeric, val text, code int, PRIMARY KEY (tenant, id))",
    );
    let more = "INSERT INTO items SELECT 'moves', i, repeat('v', 1000) || i, i FROM generate_series(10001, 30000) i; ANALYZE items";
    cluster.servers[0].superuser(DATABASE).unwrap().batch_execute(more).unwrap();
    let split = plan(&cluster);
    to_pending(&split);
    cluster.superuser().unwrap().batch_execute("ALTER SYSTEM SET shardmaster.max_copy_rate = 4000").unwrap();
    cluster.superuser().unwrap().batch_execute("SELECT pg_reload_conf()").unwrap();
    let began = Instant::now();
    assert_eq!(verify(&split), passed(20_300));
    assert!(began.elapsed() > Duration::from_secs(4), "{:?}", began.elapsed());
}

/// Clients change so many rows while a slice is compared that the log cannot tell which.
#[test]
fn rows_that_change_past_the_log_while_they_are_compared_do_not_differ() {
    let cluster = cluster_of(
        &["shardmaster.queue_max_size = '1MB'"],
        "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (tenant, id))",
    );
    let more =
        "INSERT INTO items SELECT 'moves', i, repeat('v', 200) || i, i FROM generate_series(10001, 50000) i";
    cluster.servers[0].superuser(DATABASE).unwrap().batch_execute(more).unwrap();
    let split = plan(&cluster);
    let map = "SELECT shard_split_map($1, 'items', 'val', 'md5(repeat(val, 1000)) || val')";
    cluster.superuser().unwrap().execute(map, &[&split.id]).unwrap();
    to_pending(&split);
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    let mut client = cluster.servers[1].connect(DATABASE, CLIENT).unwrap();
    client.batch_execute("UPDATE items SET val = 'new' WHERE tenant = 'moves' AND id = 100").unwrap();
    client.batch_execute("BEGIN; UPDATE items SET val = 'new' WHERE tenant = 'moves'").unwrap();
    split.call("verify").unwrap();
    let copies =
        "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'COPY (SELECT k1, k2, %hash%'";
    let mut source = cluster.servers[0].superuser(DATABASE).unwrap();
    wait::until("keys to be brought", LIMIT, || Ok((!source.query(copies, &[])?.is_empty()).then_some(())))
        .unwrap();
    client.batch_execute("COMMIT").unwrap();
    let told = outcome(&split);
    let said = (told[0].status.as_str(), told[0].differing);
    assert_eq!(said, ("failed", 0), "{told:?}");
}

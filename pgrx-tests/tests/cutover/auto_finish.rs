//! Splits that finish automatically, once they are old enough or the queue of their reverse split is large enough.

use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE};
use shardmaster_tests::fixture::{self, LIMIT, completed, plan, rows, to_pending};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;

const SETTINGS: [&str; 2] = ["shardmaster.reverse = on", "shardmaster.watch_interval = 100"];

fn settle_for(cluster: &Cluster, split: &Split<'_>, terms: &str) -> Result<(), postgres::Error> {
    let call = format!("SELECT shard_split_auto_finish({}, {terms})", split.id);
    cluster.superuser().unwrap().batch_execute(&call)
}

fn waits_for(cluster: &Cluster, split: &Split<'_>) -> Option<String> {
    let query = "SELECT waiting_for FROM shard_split_metrics($1)";
    cluster.superuser().unwrap().query_one(query, &[&split.id]).unwrap().get(0)
}

/// Waits until both shards were looked at twice, so that the master has recorded what was seen.
fn watched_twice(cluster: &Cluster, split: &Split<'_>) {
    let mut master = cluster.superuser().unwrap();
    let query = "SELECT coalesce(watched_at, 'epoch')::text FROM shardmaster.split_plan WHERE id = $1";
    let mut look = || -> String { master.query_one(query, &[&split.id]).unwrap().get(0) };
    for _ in 0..2 {
        let before = look();
        wait::until("a look at both shards", LIMIT, || Ok((look() != before).then_some(()))).unwrap();
    }
}

fn write(cluster: &Cluster, rows: &str) {
    let update = format!("UPDATE items SET val = val || '!' WHERE tenant = 'moves' AND {rows}");
    cluster.servers[1].connect(DATABASE, CLIENT).unwrap().batch_execute(&update).unwrap();
}

#[test]
#[ignore = "make test-all: an age; make test has a_split_settles_at_the_size_of_a_queue"]
fn a_split_settles_at_an_age() {
    let cluster = fixture::cluster(&SETTINGS);
    let split = plan(&cluster);
    to_pending(&split);
    settle_for(&cluster, &split, "after => '1 hour'").unwrap();
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    write(&cluster, "id < 100");
    watched_twice(&cluster, &split);
    assert_eq!(waits_for(&cluster, &split).unwrap(), "finishes automatically 01:00:00 after the cutover");
    assert!(!rows(&cluster, 0).is_empty());
    let expected = rows(&cluster, 1);
    settle_for(&cluster, &split, "after => '1 second', queue_bytes => 1000000000").unwrap();
    split.wait("finished", LIMIT).unwrap();
    assert!(rows(&cluster, 0).is_empty());
    assert_eq!(rows(&cluster, 1), expected);
    let events = split.events().unwrap();
    assert!(
        events.contains("finishes automatically 00:00:01 after the cutover, or when the queue"),
        "{events}"
    );
    settle_for(&cluster, &split, "after => '1 second'").unwrap();
}

#[test]
fn a_split_settles_at_the_size_of_a_queue() {
    let cluster = fixture::cluster(&SETTINGS);
    let split = completed(&cluster);
    settle_for(&cluster, &split, "queue_bytes => 40000").unwrap();
    write(&cluster, "id < 10");
    watched_twice(&cluster, &split);
    assert!(!rows(&cluster, 0).is_empty());
    write(&cluster, "true");
    write(&cluster, "true");
    let expected = rows(&cluster, 1);
    split.wait("finished", LIMIT).unwrap();
    assert!(rows(&cluster, 0).is_empty());
    assert_eq!(rows(&cluster, 1), expected);
}

/// The reverse split would have to copy the rows that a full queue lacks.
#[test]
#[ignore = "make test-all: a full queue; make test has a_split_settles_at_the_size_of_a_queue"]
fn a_full_queue_is_large_enough() {
    let cluster = fixture::cluster(&[SETTINGS[0], SETTINGS[1], "shardmaster.queue_max_size = 1"]);
    let split = completed(&cluster);
    settle_for(&cluster, &split, "queue_bytes => 1000000000").unwrap();
    watched_twice(&cluster, &split);
    assert!(!rows(&cluster, 0).is_empty());
    for _ in 0..100 {
        write(&cluster, "true");
    }
    let expected = rows(&cluster, 1);
    split.wait("finished", LIMIT).unwrap();
    assert_eq!(rows(&cluster, 1), expected);
}

/// Nobody renews the lease of an idle queue. The worker that looks at the target passes the new limit on.
#[test]
#[ignore = "make test-all: a limit that changes; make test has a_split_settles_at_the_size_of_a_queue"]
fn another_limit_reaches_a_queue_that_rests() {
    let cluster = fixture::cluster(&SETTINGS);
    let split = completed(&cluster);
    let limit = || -> i64 {
        let query = "SELECT queue_limit FROM shard_split_metrics() WHERE reverse_of = $1";
        cluster.superuser().unwrap().query_one(query, &[&split.id]).unwrap().get(0)
    };
    assert_eq!(limit(), 4 << 30);
    cluster.set("shardmaster.queue_max_size", "7MB").unwrap();
    watched_twice(&cluster, &split);
    assert_eq!(limit(), 7 << 20);
}

/// The target was restored to a time before the split's start, as far as the reverse split is concerned.
#[test]
#[ignore = "make test-all: a target that was set back; make test has a_split_settles_at_the_size_of_a_queue"]
fn a_way_back_that_is_gone_is_not_measured() {
    let cluster = fixture::cluster(&SETTINGS);
    let split = completed(&cluster);
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    let forget = "DELETE FROM shardmaster_agent.side WHERE side = 'source';
                  ALTER SEQUENCE shardmaster_agent.queue_2_seq RENAME TO gone";
    target.batch_execute(forget).unwrap();
    settle_for(&cluster, &split, "queue_bytes => 0").unwrap();
    watched_twice(&cluster, &split);
    assert_eq!(split.metric::<String>("activity").unwrap(), "idle", "{}", split.describe());
    assert!(!rows(&cluster, 0).is_empty());
}

#[test]
#[ignore = "make test-all: a reverse split meanwhile; make test has a_split_settles_at_the_size_of_a_queue"]
fn whoever_goes_back_does_not_settle() {
    let cluster = fixture::cluster(&SETTINGS);
    let split = completed(&cluster);
    for wrong in ["after => '-1 second'", "queue_bytes => -1"] {
        let error = settle_for(&cluster, &split, wrong).unwrap_err();
        assert_eq!(error.code().unwrap().code(), "22023", "{error}");
    }
    // Even the largest interval must not lead to a moment beyond all times.
    settle_for(&cluster, &split, "after => '170000000 years'").unwrap();
    watched_twice(&cluster, &split);
    settle_for(&cluster, &split, "after => NULL").unwrap();
    // The worker looks at its shards now and then.
    wait::until("what it waits for", LIMIT, || {
        let waits = waits_for(&cluster, &split);
        Ok((waits.as_deref() == Some("waiting for shard_split_finish")).then_some(()))
    })
    .unwrap();
    settle_for(&cluster, &split, "after => '1 hour'").unwrap();
    cluster.fault("install_begin=hold").unwrap();
    let mut master = cluster.superuser().unwrap();
    let back: i64 = master.query_one("SELECT shard_split_reverse($1)", &[&split.id]).unwrap().get(0);
    let error = settle_for(&cluster, &split, "after => '1 second'").unwrap_err();
    let text = error.as_db_error().unwrap().message();
    assert!(text.contains(&format!("is being taken back by split {back}")), "{text}");
    cluster.fault("").unwrap();
    split.wait("reversed", LIMIT).unwrap();
    let back = Split::of(&cluster, back);
    let expected = rows(&cluster, 0);
    settle_for(&cluster, &back, "after => '0'").unwrap();
    back.wait("finished", LIMIT).unwrap();
    assert!(rows(&cluster, 1).is_empty());
    assert_eq!(rows(&cluster, 0), expected);
}

/// While the shard was asked for the size of a queue, the operator has set an age instead.
#[test]
#[ignore = "make test-all: another word meanwhile; make test has a_split_settles_at_the_size_of_a_queue"]
fn what_is_said_later_counts() {
    let cluster = fixture::cluster(&SETTINGS);
    let split = completed(&cluster);
    settle_for(&cluster, &split, "queue_bytes => 1000000000").unwrap();
    let mut looks = cluster.servers[1].superuser(DATABASE).unwrap();
    let mut is_asked = || -> bool {
        let query = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND relation = 'shardmaster_agent.queue_2_1'::regclass";
        looks.query_one(query, &[]).unwrap().get(0)
    };
    wait::until("the size to be asked for", LIMIT, || {
        let mut holder = cluster.servers[1].superuser(DATABASE)?;
        holder.batch_execute("BEGIN; LOCK TABLE shardmaster_agent.queue_2_1 IN ACCESS EXCLUSIVE MODE")?;
        let asked =
            wait::until("a question", std::time::Duration::from_secs(1), || Ok(is_asked().then_some(())));
        Ok(asked.is_ok().then(|| settle_for(&cluster, &split, "after => '1 day'").unwrap()))
    })
    .unwrap();
    watched_twice(&cluster, &split);
    watched_twice(&cluster, &split);
    assert_eq!(waits_for(&cluster, &split).unwrap(), "finishes automatically 1 day after the cutover");
    assert!(!rows(&cluster, 0).is_empty());
}

/// Finish would be refused, and the reverse split would be gone by then.
#[test]
#[ignore = "make test-all: rows that differ; make test has split::concurrent_verify::what_was_found_to_differ_is_not_finished_once_the_log_is_full"]
fn a_split_whose_rows_differ_does_not_settle() {
    let cluster = fixture::cluster(&[SETTINGS[0], "shardmaster.watch_interval = '2s'"]);
    let split = completed(&cluster);
    let wrong = "ALTER TABLE items DISABLE TRIGGER ALL; UPDATE items SET val = 'wrong' WHERE tenant = 'moves' AND id = 10;
                 ALTER TABLE items ENABLE TRIGGER ALL";
    cluster.servers[1].superuser(DATABASE).unwrap().batch_execute(wrong).unwrap();
    let verified = |status: &str| {
        split.call("verify").unwrap();
        let query = "SELECT status FROM shard_split_verification($1)";
        let is_so = || -> shardmaster_tests::Result<Option<()>> {
            let now: String = split.superuser()?.query_one(query, &[&split.id])?.get(0);
            Ok((now == status).then_some(()))
        };
        wait::until(status, LIMIT, is_so).map_err(|e| format!("{e}; {}", split.describe())).unwrap();
    };
    verified("differs");
    settle_for(&cluster, &split, "after => '1 second'").unwrap();
    watched_twice(&cluster, &split);
    watched_twice(&cluster, &split);
    let waits = waits_for(&cluster, &split).unwrap();
    assert_eq!(
        waits,
        "finishes automatically 00:00:01 after the cutover, but not while rows are compared or known to differ"
    );
    assert!(!rows(&cluster, 0).is_empty());
    write(&cluster, "id = 10");
    // A client has written this row.
    split.call("verify").unwrap();
    split.wait("finished", LIMIT).unwrap();
    assert!(rows(&cluster, 0).is_empty());
}

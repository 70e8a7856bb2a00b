//! Changes of reference tables that are in no queue, and shards that only seem to follow: replaced tables,
//! shards that are copies of a disk, and masters and origins that were set back.

use super::failures::restart_worker;
use super::replication::{ADD, ALL, WAIT, alike, all, contents, held, master, refused, states, zoo};
use shardmaster_tests::cluster::{Cluster, DATABASE, MOVER};
use shardmaster_tests::env::at_most;
use shardmaster_tests::fixture::{LIMIT, by_owner as run, by_superuser, outcome};
use shardmaster_tests::server::{Server, Stop};
use shardmaster_tests::{standby, wait};
use std::time::Duration;

const ASSIGN: &str = "SELECT shard_assign('new', 'shard_b')";

fn filled(servers: usize) -> Cluster {
    let cluster = zoo(servers);
    run(&cluster, 0, "INSERT INTO countries SELECT 'c' || i, i FROM generate_series(1, 50) i");
    alike(&cluster, &ALL);
    cluster
}

/// A change on a copy is noticed within some seconds.
fn become_alike(cluster: &Cluster, server: usize, table: &str) {
    wait::until("it to be as its origin", Duration::from_secs(40), || {
        Ok((contents(cluster, 0, table) == contents(cluster, server, table)).then_some(()))
    })
    .unwrap();
}

fn may_write(cluster: &Cluster, server: usize, statement: &str) {
    wait::until(statement, Duration::from_secs(40), || {
        let mut session = cluster.servers[server].superuser(DATABASE)?;
        Ok((outcome(&mut session, statement) == "ok").then_some(()))
    })
    .unwrap();
}

#[test]
#[ignore = "make test-all: a table made anew; make test has what_was_written_past_a_guard_is_set_back"]
fn a_copy_that_is_another_table_is_filled_again() {
    let cluster = filled(2);
    let create = "CREATE TABLE countries (code text PRIMARY KEY, name text)";
    run(&cluster, 1, &format!("DROP TABLE countries; {create}"));
    become_alike(&cluster, 1, "countries");
    // A table that was renamed is no longer a copy.
    run(&cluster, 1, &format!("ALTER TABLE countries RENAME TO former; {create}"));
    become_alike(&cluster, 1, "countries");
    may_write(&cluster, 1, "INSERT INTO former VALUES ('free')");
    // No key arrives before the table is filled.
    cluster.hold("reference_applied").unwrap();
    run(&cluster, 1, &format!("DROP TABLE countries; {create}"));
    held(&cluster, "reference_applied");
    assert_eq!(refused(&cluster, ASSIGN), "55000");
    cluster.fault("").unwrap();
    become_alike(&cluster, 1, "countries");
    master(&cluster, WAIT);
    master(&cluster, ASSIGN);
}

#[test]
fn what_was_written_past_a_guard_is_set_back() {
    let cluster = filled(2);
    let past = |statement: &str| {
        format!(
            "ALTER TABLE countries DISABLE TRIGGER USER; {statement}; ALTER TABLE countries ENABLE TRIGGER USER"
        )
    };
    for statement in [
        "DELETE FROM countries WHERE code < 'c3'",
        "UPDATE countries SET name = 'x'",
        "INSERT INTO countries VALUES ('more')",
        "TRUNCATE countries",
    ]
    .into_iter()
    .take(at_most(1))
    {
        by_superuser(&cluster, 1, &past(statement));
        become_alike(&cluster, 1, "countries");
    }
    let mut session = cluster.servers[1].superuser(DATABASE).unwrap();
    assert_eq!(outcome(&mut session, "DELETE FROM countries"), "55000");
}

/// A wait also covers changes that are in no queue.
#[test]
#[ignore = "make test-all: what a wait knows; make test has what_was_written_past_a_guard_is_set_back"]
fn a_wait_knows_what_is_in_no_queue() {
    let cluster = filled(2);
    for round in 0..4 {
        run(
            &cluster,
            0,
            &format!(
                "BEGIN; ALTER TABLE countries DISABLE TRIGGER USER; UPDATE countries SET name = 'missed {round}';
                 ALTER TABLE countries ENABLE TRIGGER USER; COMMIT"
            ),
        );
        alike(&cluster, &["countries"]);
    }
    run(&cluster, 0, "ALTER TABLE countries ADD more int DEFAULT 4");
    assert_eq!(refused(&cluster, WAIT), "55000");
    run(&cluster, 1, "ALTER TABLE countries ADD more int DEFAULT 5");
    wait::until("it to follow again", LIMIT, || Ok((!states(&cluster).contains("failed")).then_some(())))
        .unwrap();
    alike(&cluster, &["countries"]);
}

/// A shard that was made of the origin's disk has the origin's capture. A shard that is at the origin's place
/// from now on refuses its clients.
#[test]
#[ignore = "make test-all: a copy of a disk; make test has an_origin_may_fail_over"]
fn a_server_may_come_to_another_end() {
    let mut cluster = filled(2);
    let mut twin = Server::standby_of(&cluster.servers[0], "twin").unwrap();
    twin.run().unwrap();
    standby::separate(&cluster.servers[0], &twin).unwrap();
    twin.promote().unwrap();
    let conninfo = twin.conninfo(DATABASE, MOVER);
    run(&cluster, 0, "UPDATE countries SET name = 'after'; DELETE FROM plans WHERE id > 150");
    master(&cluster, &format!("SELECT shard_add('twin', $c${conninfo}$c$)"));
    cluster.servers.push(twin);
    alike(&cluster, &ALL);
    let mut session = cluster.servers[2].superuser(DATABASE).unwrap();
    assert_eq!(outcome(&mut session, "DELETE FROM countries"), "55000");
    // It takes the place of the origin, whose server is lost.
    cluster.servers[0].stop(Stop::Kill).unwrap();
    master(&cluster, "SELECT shard_drop('twin')");
    master(&cluster, &format!("SELECT shard_set_endpoint('shard_a', conninfo => $c${conninfo}$c$)"));
    let twin = cluster.servers.swap_remove(2);
    cluster.servers[0] = twin;
    may_write(&cluster, 0, "INSERT INTO countries VALUES ('on the twin')");
    alike(&cluster, &ALL);
    assert!(contents(&cluster, 1, "countries").iter().any(|row| row.contains("on the twin")));
}

/// The origin's standby takes its place, without the origin's last changes.
#[test]
fn an_origin_may_fail_over() {
    let mut cluster = filled(3);
    let standby = standby::add(&cluster, 0).unwrap();
    alike(&cluster, &ALL);
    standby::cut_off(&cluster, 0, &standby).unwrap();
    run(
        &cluster,
        0,
        "INSERT INTO countries VALUES ('lost'); UPDATE plans SET amount = 99; DELETE FROM prices WHERE plan = 7;
         TRUNCATE prices",
    );
    alike(&cluster, &ALL);
    standby::fail_over(&mut cluster, 0, standby).unwrap();
    run(&cluster, 0, "INSERT INTO countries VALUES ('found'); UPDATE plans SET amount = 1 WHERE id = 5");
    alike(&cluster, &ALL);
    for server in 0..3 {
        let rows = contents(&cluster, server, "countries").join(" ");
        assert!(rows.contains("found") && !rows.contains("lost"), "{rows}");
    }
    assert_eq!(contents(&cluster, 2, "prices").len(), 200);
    run(&cluster, 0, "UPDATE plans SET amount = amount + 1; DELETE FROM countries WHERE code = 'c7'");
    alike(&cluster, &ALL);
}

/// Shards have tables that the master no longer knows, and generations of later workers.
#[test]
#[ignore = "make test-all: a restored master; make test has reference::restored::a_shard_that_knows_nothing_any_more_keeps_its_rows"]
fn a_master_may_be_back_from_before_a_table() {
    let mut cluster = zoo(2);
    master(&cluster, "SELECT shard_table_drop('countries')");
    let known = "SELECT count(*)::text FROM shardmaster.reference_table";
    wait::until("it to be forgotten", LIMIT, || {
        Ok((all(&mut cluster.superuser().unwrap(), known) == "2").then_some(()))
    })
    .unwrap();
    cluster.master.copy_disk().unwrap();
    master(&cluster, ADD);
    alike(&cluster, &ALL);
    // Many workers have followed each other.
    master(&cluster, "UPDATE shardmaster.reference_set SET generation = generation + 100");
    restart_worker(&cluster);
    alike(&cluster, &ALL);
    cluster.master.set_disk_back(Stop::Immediate).unwrap();
    cluster.master.run().unwrap();
    run(&cluster, 0, "UPDATE plans SET amount = 8");
    master(&cluster, &WAIT.replace("60 s", "15 s"));
    alike(&cluster, &["plans", "prices"]);
    may_write(&cluster, 1, "INSERT INTO countries VALUES ('free')");
    let left = "SELECT count(*)::text FROM pg_trigger WHERE tgname LIKE '00_shardmaster%' AND tgrelid = 'countries'::regclass";
    for server in [0, 1] {
        let mut session = cluster.servers[server].superuser(DATABASE).unwrap();
        assert_eq!(all(&mut session, left), "0");
    }
    let queue = "SELECT coalesce(to_regclass('shardmaster_agent.reference_queue_1_4')::text, 'none')";
    assert_eq!(all(&mut cluster.servers[0].superuser(DATABASE).unwrap(), queue), "none");
    master(&cluster, ADD);
    alike(&cluster, &ALL);
}

/// A shard that hangs in the middle of a table delays the others only until this is noticed.
#[test]
#[ignore = "make test-all: a whole table; make test has lookups::consistency::a_shard_that_hangs_holds_up_its_own_keys_alone"]
fn others_follow_while_one_hangs_in_a_whole_table() {
    let cluster = filled(3);
    cluster.set("shardmaster.remote_timeout", "2s").unwrap();
    run(
        &cluster,
        0,
        "INSERT INTO countries SELECT 'n' || i, repeat('x', 100) FROM generate_series(1, 20000) i",
    );
    alike(&cluster, &ALL);
    cluster.hold("reference_snapshot").unwrap();
    let whole = "ALTER TABLE countries DISABLE TRIGGER USER; UPDATE countries SET name = 'changed'; ALTER TABLE countries ENABLE TRIGGER USER";
    run(&cluster, 0, whole);
    held(&cluster, "reference_snapshot");
    cluster.servers[1].hang().unwrap();
    cluster.fault("").unwrap();
    wait::until("the other to follow", Duration::from_secs(14), || {
        Ok((contents(&cluster, 0, "countries") == contents(&cluster, 2, "countries")).then_some(()))
    })
    .unwrap();
    cluster.servers[1].wake().unwrap();
    alike(&cluster, &ALL);
}

/// A change that commits while the position of a shard is recorded is not covered by that position.
#[test]
fn a_shard_has_no_more_than_when_its_origin_was_asked() {
    let cluster = filled(2);
    let mut slow = cluster.superuser().unwrap();
    slow.batch_execute("BEGIN; UPDATE shardmaster.reference_copy SET hint = hint").unwrap();
    let (mut look, waits) = (
        cluster.superuser().unwrap(),
        "backend_type = 'shardmaster reference tables' AND wait_event_type = 'Lock'",
    );
    let any = |which: &str| format!("SELECT count(*) = 1 FROM pg_stat_activity WHERE {which}");
    wait::until_true(&mut look, "the worker to write it down", LIMIT, &any(waits)).unwrap();
    cluster.hold("reference_begin").unwrap();
    run(&cluster, 0, "INSERT INTO countries VALUES ('late')");
    let mut client = cluster.superuser().unwrap();
    let waiting = std::thread::spawn(move || {
        client
            .batch_execute("SELECT shard_reference_wait(timeout => '3 s')")
            .map_err(|error| error.to_string())
    });
    let called =
        "query LIKE 'SELECT shard_reference_wait%' AND state = 'active' AND wait_event = 'Extension'";
    wait::until_true(&mut look, "a client to wait", LIMIT, &any(called)).unwrap();
    slow.batch_execute("COMMIT").unwrap();
    let outcome = waiting.join().unwrap();
    let is_there = contents(&cluster, 1, "countries").iter().any(|row| row.contains("late"));
    assert!(outcome.is_err() && !is_there, "{outcome:?}, {is_there}");
    cluster.fault("").unwrap();
    alike(&cluster, &ALL);
}

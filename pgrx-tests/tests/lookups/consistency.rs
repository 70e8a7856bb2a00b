//! Lookup indexes by another column. When nothing changes, their pairs equal the rows of all shards, whatever
//! has happened before.

use postgres::Client;
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use shardmaster_tests::env::is_long_run;
use shardmaster_tests::fixture::{LIMIT, by_superuser, by_superusers};
use shardmaster_tests::lookups::{
    ADD, add, insert, pairs, route, stage, texts, wait_equal, wait_filled, wait_route,
};
use shardmaster_tests::queries::error;
use shardmaster_tests::repair::wait_held;
use shardmaster_tests::server::Stop;
use shardmaster_tests::single_fault::SingleFault;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

#[test]
fn rows_that_are_there_and_those_that_come_are_found() {
    let cluster = stage(&[]);
    by_superuser(&cluster, 0, &insert(1, 3000, "a"));
    by_superuser(&cluster, 1, &insert(1, 10, "c"));
    let mut master = add(&cluster);
    wait_equal(&cluster, &mut master);
    assert_eq!(route(&mut master, "a3000@x.org"), "shard_a");
    assert_eq!(route(&mut master, "c1@x.org"), "shard_b");
    let of: String = master.query_one("SELECT shard_of('c1@x.org', 'read', 'emails')", &[]).unwrap().get(0);
    assert_eq!(of, "shard_b");
    let owner: String = master.query_one("SELECT shard_lookup('a7@x.org', 'emails')", &[]).unwrap().get(0);
    assert_eq!(owner, "a");
    assert_eq!(route(&mut master, "nobody@x.org"), "42704");

    by_superuser(&cluster, 1, "INSERT INTO users VALUES ('c', 11, 'new@x.org')");
    wait_route(&mut master, "new@x.org", "shard_b");
    by_superuser(&cluster, 1, "UPDATE users SET email = 'newer@x.org' WHERE id = 11");
    wait_route(&mut master, "newer@x.org", "shard_b");
    wait_route(&mut master, "new@x.org", "42704");
    by_superuser(&cluster, 1, "DELETE FROM users WHERE id = 11");
    wait_route(&mut master, "newer@x.org", "42704");
    by_superuser(&cluster, 0, "TRUNCATE users");
    wait_equal(&cluster, &mut master);
    assert_eq!(pairs(&mut master).len(), 10);
}

/// A writer that changes, deletes and inserts keys of its own tenant all the time.
fn write(
    cluster: &Cluster,
    tenant: &'static str,
    ends: &'static AtomicBool,
    count: &'static AtomicU32,
) -> thread::JoinHandle<()> {
    let mut master = cluster.superuser().unwrap();
    let hosts: Vec<Client> =
        (0..2).map(|server| cluster.servers[server].connect(DATABASE, CLIENT).unwrap()).collect();
    thread::spawn(move || {
        let mut hosts = hosts;
        let mut number = 0;
        while !ends.load(Ordering::Relaxed) {
            wait::rest();
            number += 1;
            let id = number % 50;
            let statement = match number % 7 {
                0 => format!("DELETE FROM users WHERE tenant = '{tenant}' AND id = {id}"),
                1 | 2 => format!(
                    "UPDATE users SET email = '{tenant}{number}@y.org' WHERE tenant = '{tenant}' AND id = {id}"
                ),
                3 => format!("UPDATE users SET email = NULL WHERE tenant = '{tenant}' AND id = {id}"),
                4 => format!("BEGIN; INSERT INTO users VALUES ('{tenant}', -1, 'rolled back'); ROLLBACK"),
                _ => format!(
                    "INSERT INTO users VALUES ('{tenant}', {id}, '{tenant}{number}@x.org')
                         ON CONFLICT (tenant, id) DO UPDATE SET email = excluded.email"
                ),
            };
            let Ok(row) = master.query_one("SELECT shard_of($1)", &[&tenant]) else { continue };
            let server = usize::from(row.get::<_, String>(0) == "shard_b");
            // A write that is refused because the tenant is moving is not repeated.
            if hosts[server].batch_execute(&statement).is_err() {
                let _ = hosts[server].batch_execute("ROLLBACK");
                continue;
            }
            count.fetch_add(1, Ordering::Relaxed);
        }
    })
}

#[test]
fn a_tenant_that_moves_takes_its_keys_along() {
    static ENDS: AtomicBool = AtomicBool::new(false);
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let cluster = stage(&[]);
    by_superuser(&cluster, 0, &insert(100, 2000, "a"));
    let writers: Vec<_> = ["a", "b", "c"].map(|tenant| write(&cluster, tenant, &ENDS, &COUNT)).into();
    let mut master = add(&cluster);
    for (from, to) in [("shard_a", "shard_b"), ("shard_b", "shard_a")] {
        let split = Split::plan(&cluster, from, to, &["a"]).unwrap();
        split.run(|_| ()).unwrap();
        split.finish(LIMIT).unwrap();
    }
    ENDS.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert!(COUNT.load(Ordering::Relaxed) > 300, "{COUNT:?}");
    wait_equal(&cluster, &mut master);
    assert_eq!(route(&mut master, "a2000@x.org"), "shard_a");
}

/// One entry's transaction commits long after others were taken, and another one is prepared.
#[test]
fn what_commits_late_is_not_missed() {
    let cluster = stage(&[]);
    let mut master = add(&cluster);
    let mut late = cluster.servers[0].superuser(DATABASE).unwrap();
    late.batch_execute("BEGIN; INSERT INTO users VALUES ('a', 1, 'late@x.org')").unwrap();
    let mut prepared = cluster.servers[0].superuser(DATABASE).unwrap();
    prepared
        .batch_execute("BEGIN; INSERT INTO users VALUES ('a', 2, 'later@x.org'); PREPARE TRANSACTION 'p'")
        .unwrap();
    for i in 10..20 {
        by_superuser(&cluster, 0, &format!("INSERT INTO users VALUES ('b', {i}, 'b{i}@x.org')"));
        wait_route(&mut master, &format!("b{i}@x.org"), "shard_a");
    }
    late.batch_execute("COMMIT").unwrap();
    wait_route(&mut master, "late@x.org", "shard_a");
    prepared.batch_execute("COMMIT PREPARED 'p'").unwrap();
    wait_route(&mut master, "later@x.org", "shard_a");
    wait_equal(&cluster, &mut master);
}

/// Somebody has deleted entries that the worker is about to remove, and new ones are in their places by then.
#[test]
fn a_new_entry_at_the_place_of_one_that_is_taken_out_stays() {
    let cluster = stage(&[]);
    let mut master = add(&cluster);
    cluster.hold("lookup_committed").unwrap();
    by_superuser(&cluster, 0, "INSERT INTO users VALUES ('b', 1, 'first@x.org')");
    wait_held(&cluster, "lookup_committed");
    let mut shard = cluster.servers[0].superuser(DATABASE).unwrap();
    let queue =
        "SELECT relname::text FROM pg_class WHERE relname LIKE 'lookup\\_queue\\_%' AND relkind = 'r'";
    let queue: String = shard.query_one(queue, &[]).unwrap().get(0);
    let places = format!("SELECT array_agg(ctid::text ORDER BY ctid) FROM shardmaster_agent.{queue}");
    let mut places = || shard.query_one(&places, &[]).unwrap().get::<_, Option<Vec<String>>>(0);
    let before = places();
    by_superuser(&cluster, 0, &format!("DELETE FROM shardmaster_agent.{queue}"));
    by_superuser(&cluster, 0, &format!("VACUUM shardmaster_agent.{queue}"));
    by_superuser(&cluster, 0, "INSERT INTO users VALUES ('b', 2, 'second@x.org')");
    assert!(before.is_some() && places() == before, "{before:?}");
    cluster.fault("").unwrap();
    wait_route(&mut master, "second@x.org", "shard_a");
}

/// These writers were there before their writes were captured.
#[test]
fn a_fill_waits_for_those_who_were_there_before() {
    let cluster = stage(&[]);
    let mut early = cluster.servers[0].superuser(DATABASE).unwrap();
    early.batch_execute("BEGIN; INSERT INTO users VALUES ('a', 1, 'early@x.org')").unwrap();
    let mut master = cluster.superuser().unwrap();
    master.batch_execute(ADD).unwrap();
    // CREATE TRIGGER waits for the writer, and the lookup index reports it.
    let waits = "SELECT count(*) > 0 FROM shard_lookups() WHERE shard_key = 'shard_a' AND state <> 'filled' AND waits_for LIKE 'lock on%'";
    wait::until_true(&mut master, "it waits", LIMIT, waits).unwrap();
    assert_eq!(route(&mut master, "early@x.org"), "55000");
    early.batch_execute("COMMIT").unwrap();
    wait_filled(&mut master);
    assert_eq!(route(&mut master, "early@x.org"), "shard_a");
}

/// A worker dies and a server restarts at each point. Nothing is lost, and nothing stays that was deleted.
#[test]
fn nothing_is_lost_at_any_point() {
    let mut cluster = stage(&[]);
    by_superuser(&cluster, 0, &insert(1, 1500, "a"));
    let points = [
        "lookup_installed",
        "lookup_missed",
        "lookup_fetched",
        "lookup_looked",
        "lookup_announced",
        "lookup_committed",
        "lookup_consumed",
    ];
    let mut master = cluster.superuser().unwrap();
    for (number, point) in points.into_iter().enumerate() {
        for (kind, struck) in ["exit", "kill", "shard"].into_iter().enumerate() {
            // Each point is tried with a kill. The first one is also tried with another end of a worker, and
            // one with the end of its shard.
            if !is_long_run() && kind != 1 && ![(0, 0), (3, 2)].contains(&(number, kind)) {
                continue;
            }
            // Each run starts from scratch. At the points of a queue, the fault is set once the lookup index
            // is filled.
            let action = if struck == "shard" { "hold" } else { struck };
            let arm = || SingleFault::arm(&cluster, point, action).unwrap();
            let early = (number < 3).then(arm);
            let again = "SELECT shard_table_drop('users', 'emails'); SELECT shard_table_add('users', 'email', 'emails')";
            let begin = if number == 0 && struck == "exit" { ADD } else { again };
            let fault = match early {
                Some(fault) => {
                    fault.by(|| master.batch_execute(begin)).unwrap();
                    fault
                }
                None => {
                    master.batch_execute(begin).unwrap();
                    wait_filled(&mut master);
                    arm()
                }
            };
            by_superuser(
                &cluster,
                0,
                &format!(
                    "UPDATE users SET email = '{point}{struck}@x.org' WHERE tenant = 'a' AND id = 1;
                     DELETE FROM users WHERE tenant = 'a' AND id = {id}; INSERT INTO users VALUES ('b', {id}, 'b{id}{struck}@x.org')
                         ON CONFLICT (tenant, id) DO UPDATE SET email = excluded.email",
                    id = 100 + number
                ),
            );
            if struck == "shard" {
                wait_held(&cluster, point);
                cluster.servers[0].stop(Stop::Immediate).unwrap();
                cluster.servers[0].run().unwrap();
                cluster.fault("").unwrap();
            } else {
                fault.wait(LIMIT).unwrap();
            }
            master = cluster.superuser().unwrap();
            wait_equal(&cluster, &mut master);
            wait_filled(&mut master);
            assert_eq!(route(&mut master, &format!("{point}{struck}@x.org")), "shard_a");
        }
    }
    wait_equal(&cluster, &mut master);
}

#[test]
fn two_owners_of_a_key_are_told() {
    let cluster = stage(&[]);
    let mut master = add(&cluster);
    by_superuser(&cluster, 0, "INSERT INTO users VALUES ('a', 1, 'both@x.org')");
    wait_route(&mut master, "both@x.org", "shard_a");
    by_superuser(&cluster, 1, "INSERT INTO users VALUES ('c', 1, 'both@x.org')");
    let told = "SELECT count(*) = 1 FROM shard_lookup_conflicts('emails') WHERE key = 'both@x.org' AND owner = 'c' AND routed_to = 'a'";
    wait::until_true(&mut master, "a conflict", LIMIT, told).unwrap();
    assert_eq!(route(&mut master, "both@x.org"), "shard_a");
    // The first row is deleted. A session that cached its route drops it.
    by_superuser(&cluster, 0, "DELETE FROM users");
    wait_route(&mut master, "both@x.org", "shard_b");
    wait::until_true(
        &mut master,
        "no conflict",
        LIMIT,
        "SELECT count(*) = 0 FROM shard_lookup_conflicts('emails')",
    )
    .unwrap();
    wait_equal(&cluster, &mut master);
}

#[test]
fn a_claim_is_the_owners_until_it_ends_or_its_row_goes() {
    let cluster = stage(&[]);
    let mut master = add(&cluster);
    let claim = |key: &str, owner: &str, lease: &str| {
        format!("SELECT shard_lookup_claim('{key}', '{owner}', 'emails', '{lease}')")
    };
    master.batch_execute(&claim("k@x.org", "c", "1 hour")).unwrap();
    assert_eq!(route(&mut master, "k@x.org"), "shard_b");
    assert_eq!(error(&mut master, &claim("k@x.org", "a", "1 hour")).0, "23505");
    master.batch_execute(&claim("k@x.org", "c", "1 min")).unwrap();
    assert_eq!(error(&mut master, &claim("l@x.org", "nobody", "1 min")).0, "42704");
    assert_eq!(error(&mut master, &claim("l@x.org", "a", "0")).0, "22023");
    // A fill leaves the claim alone.
    by_superuser(&cluster, 1, "TRUNCATE users");
    by_superuser(&cluster, 1, "INSERT INTO users VALUES ('c', 1, 'other@x.org')");
    wait_route(&mut master, "other@x.org", "shard_b");
    wait_filled(&mut master);
    assert_eq!(route(&mut master, "k@x.org"), "shard_b");
    // Its row is inserted and deleted again.
    by_superuser(&cluster, 1, "INSERT INTO users VALUES ('c', 2, 'k@x.org')");
    let has_row = "SELECT count(*) = 1 FROM shardmaster.lookup_entry WHERE key = 'k@x.org' AND has_row";
    wait::until_true(&mut master, "its row", LIMIT, has_row).unwrap();
    let until: Option<std::time::SystemTime> =
        master.query_one(&claim("k@x.org", "c", "1 s"), &[]).unwrap().get(0);
    assert_eq!(until, None);
    by_superuser(&cluster, 1, "DELETE FROM users WHERE id = 2");
    wait_route(&mut master, "k@x.org", "42704");
    // A claim without a row ends, and the next owner may claim the key.
    master.batch_execute(&claim("m@x.org", "c", "1 ms")).unwrap();
    wait_route(&mut master, "m@x.org", "42704");
    master.batch_execute(&claim("m@x.org", "a", "1 min")).unwrap();
    assert_eq!(route(&mut master, "m@x.org"), "shard_a");
}

/// These rows were there before their tenant was routed to them, and some stay behind.
#[test]
fn an_assignment_brings_the_keys_of_its_rows() {
    let cluster = stage(&[]);
    let mut master = add(&cluster);
    by_superuser(&cluster, 1, &insert(1, 2500, "d"));
    by_superuser(&cluster, 0, "INSERT INTO users VALUES ('d', 1, 'left@x.org')");
    by_superuser(&cluster, 1, "INSERT INTO users VALUES ('c', 1, 'c@x.org')");
    wait_route(&mut master, "c@x.org", "shard_b");
    wait_equal(&cluster, &mut master);
    assert_eq!(route(&mut master, "d1@x.org"), "42704");
    master.batch_execute("SELECT shard_assign('d', 'shard_b')").unwrap();
    wait_equal(&cluster, &mut master);
    assert_eq!(route(&mut master, "d2500@x.org"), "shard_b");
    master.batch_execute("SELECT shard_assign('d', 'shard_a', force => true)").unwrap();
    wait_equal(&cluster, &mut master);
    assert_eq!(route(&mut master, "left@x.org"), "shard_a");
    // The key may exist until all rows of the tenant were looked at.
    wait_route(&mut master, "d1@x.org", "42704");
    master.batch_execute("SELECT shard_unassign('d')").unwrap();
    wait_equal(&cluster, &mut master);
}

/// If a queue is full, writers continue, and the lookup index is filled again.
#[test]
#[ignore = "make test-all: a full queue; make test has faults::bad_input::a_worker_that_ends_while_it_clears_a_full_queue_is_followed_by_one_that_does"]
fn a_full_queue_is_filled_again() {
    let cluster = stage(&["shardmaster.queue_max_size = '1MB'"]);
    let mut master = add(&cluster);
    cluster.hold("lookup_looked").unwrap();
    by_superuser(&cluster, 0, "INSERT INTO users VALUES ('a', 0, 'first@x.org')");
    wait_held(&cluster, "lookup_looked");
    by_superuser(&cluster, 0, &insert(1, 60_000, "a"));
    by_superuser(&cluster, 0, "DELETE FROM users WHERE id = 0");
    let full = "SELECT last_value > 1 FROM shardmaster_agent.lookup_queue_1_seq";
    let mut shard = cluster.servers[0].superuser(DATABASE).unwrap();
    assert!(shard.query_one(full, &[]).unwrap().get::<_, bool>(0));
    cluster.fault("").unwrap();
    wait_equal(&cluster, &mut master);
    wait_filled(&mut master);
    assert!(!shard.query_one(full, &[]).unwrap().get::<_, bool>(0));
}

#[test]
fn a_shard_that_hangs_holds_up_its_own_keys_alone() {
    let cluster = stage(&["shardmaster.remote_timeout = '10s'"]);
    let mut master = add(&cluster);
    cluster.servers[1].hang().unwrap();
    // A row is on the wrong shard, so the other shard must be asked for it.
    by_superuser(&cluster, 0, "INSERT INTO users VALUES ('c', 1, 'c@x.org')");
    for i in 1..4 {
        by_superuser(&cluster, 0, &insert(i, i, "a"));
        wait_route(&mut master, &format!("a{i}@x.org"), "shard_a");
    }
    let said = "SELECT count(*) = 1 FROM shard_status() WHERE item = 'lookup index \"emails\" on shard \"shard_b\"' AND NOT ok";
    wait::until_true(&mut master, "it is said", LIMIT, said).unwrap();
    cluster.servers[1].wake().unwrap();
    by_superuser(&cluster, 1, &insert(2, 2, "c"));
    wait_route(&mut master, "c2@x.org", "shard_b");
    let well = "SELECT count(*) = 2 AND bool_and(ok) FROM shard_status() WHERE item LIKE 'lookup index %'";
    wait::until_true(&mut master, "all is well", LIMIT, well).unwrap();
    wait_equal(&cluster, &mut master);
}

#[test]
#[ignore = "make test-all: buckets and ranges; make test has a_tenant_that_moves_takes_its_keys_along"]
fn owners_are_found_by_bucket_and_by_range() {
    let cluster = stage(&[]);
    by_superusers(
        &cluster,
        &format!(
            "SET ROLE {OWNER}; CREATE TABLE event (id bigint PRIMARY KEY, number bigint); CREATE INDEX ON event (number);
             CREATE TABLE doc (path text COLLATE \"C\" PRIMARY KEY, title text)"
        ),
    );
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_keyspace_add('events', 'hash', 4, 'bigint', '{shard_a,shard_b}');
             SELECT shard_table_add('event', 'id', 'events');
             SELECT shard_keyspace_add('docs', 'range', key_type => 'text'), shard_table_add('doc', 'path', 'docs');
             SELECT shard_assign_range(NULL, 'm', 'shard_a', 'docs'), shard_assign_range('m', NULL, 'shard_b', 'docs');
             SELECT shard_keyspace_add('numbers', 'lookup', key_type => 'bigint', of => 'events');
             SELECT shard_keyspace_add('titles', 'lookup', of => 'docs');
             SELECT shard_table_add('event', 'number', 'numbers'), shard_table_add('doc', 'title', 'titles')",
        )
        .unwrap();
    for i in 1..41 {
        let shard: String =
            master.query_one(&format!("SELECT shard_of('{i}', keyspace => 'events')"), &[]).unwrap().get(0);
        by_superuser(
            &cluster,
            usize::from(shard == "shard_b"),
            &format!("INSERT INTO event VALUES ({i}, {})", i + 1000),
        );
    }
    by_superuser(&cluster, 0, "INSERT INTO doc VALUES ('apple', 'A')");
    by_superuser(&cluster, 1, "INSERT INTO doc VALUES ('zebra', 'Z')");
    let all = "SELECT count(*) = 40 FROM shardmaster.lookup_entry WHERE lookup = 'numbers'";
    wait::until_true(&mut master, "numbers", LIMIT, all).unwrap();
    let right = "SELECT bool_and(shard_of('00' || i + 1000, 'write', 'numbers') = shard_of(i::text, 'write', 'events'))
                   FROM generate_series(1, 40) i";
    assert!(master.query_one(right, &[]).unwrap().get::<_, bool>(0));
    let plan = "SELECT shard_split_plan('shard_a', 'shard_b', '{0}', keyspace => 'events')";
    let split = Split::plan_by(&cluster, plan).unwrap();
    split.run(|_| ()).unwrap();
    split.finish(LIMIT).unwrap();
    assert!(master.query_one(right, &[]).unwrap().get::<_, bool>(0));
    by_superuser(&cluster, 1, "UPDATE event SET number = number + 1000");
    let moved =
        "SELECT count(*) > 10 FROM shardmaster.lookup_entry WHERE lookup = 'numbers' AND key::int > 2000";
    wait::until_true(&mut master, "what has moved", LIMIT, moved).unwrap();

    let titles = |master: &mut Client| {
        texts(master, "SELECT key FROM shardmaster.lookup_entry WHERE lookup = 'titles'")
    };
    let is = |wanted: &'static [&'static str]| move |found: &BTreeSet<String>| found.iter().eq(wanted);
    wait::until("titles", LIMIT, || Ok(is(&["A", "Z"])(&titles(&mut master)).then_some(()))).unwrap();
    // Its row is on a shard to which nobody is routed any more. It is found again after the reverse split.
    master.batch_execute("SELECT shard_assign_range('m', NULL, 'shard_a', 'docs', force => true)").unwrap();
    wait::until("one title", LIMIT, || Ok(is(&["A"])(&titles(&mut master)).then_some(()))).unwrap();
    master.batch_execute("SELECT shard_assign_range('m', NULL, 'shard_b', 'docs', force => true)").unwrap();
    wait::until("titles", LIMIT, || Ok(is(&["A", "Z"])(&titles(&mut master)).then_some(()))).unwrap();
}

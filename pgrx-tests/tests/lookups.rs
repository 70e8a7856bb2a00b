//! Look-ups by another column: at rest their pairs are the rows of all shards, whatever has happened before.

use postgres::Client;
use shardmaster_tests::asking::error;
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use shardmaster_tests::fixture::{LIMIT, by_superuser, by_superusers, state_of};
use shardmaster_tests::mender::wait_held;
use shardmaster_tests::server::Stop;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

/// Two servers with the table `users`, whose tenants `a`, `b` are on the first one, `c` on the second.
fn stage(config: &[&str]) -> Cluster {
    let mut lines = vec!["fsync = off", "max_prepared_transactions = 5", "shardmaster.tail_interval = 20"];
    lines.extend_from_slice(config);
    let cluster = Cluster::servers(2, &lines).unwrap();
    by_superusers(
        &cluster,
        &format!(
            "SET ROLE {OWNER}; CREATE TABLE users (tenant text, id int, email text, PRIMARY KEY (tenant, id));
             CREATE INDEX ON users (email); GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON users TO {CLIENT}"
        ),
    );
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_table_add('users', 'tenant', key_type => 'text');
             SELECT shard_assign_many('{a,b}', 'shard_a'), shard_assign('c', 'shard_b')",
        )
        .unwrap();
    cluster
}

const ADD: &str = "SELECT shard_keyspace_add('emails', 'lookup', key_type => 'text', of => 'default');
    SELECT shard_table_add('users', 'email', 'emails')";

fn add(cluster: &Cluster) -> Client {
    let mut master = cluster.superuser().unwrap();
    master.batch_execute(ADD).unwrap();
    wait_filled(&mut master);
    master
}

fn wait_filled(master: &mut Client) {
    let filled =
        "SELECT count(*) = 2 AND bool_and(state = 'filled') FROM shard_lookups() WHERE keyspace = 'emails'";
    wait::until_true(master, "filled", LIMIT, filled).unwrap();
}

fn texts(client: &mut Client, query: &str) -> BTreeSet<String> {
    client.query(query, &[]).unwrap().iter().map(|row| row.get(0)).collect()
}

/// The pairs that the master has, conflicts among them.
fn pairs(master: &mut Client) -> BTreeSet<String> {
    texts(
        master,
        "SELECT concat_ws(' ', key, owner) FROM shardmaster.lookup_entry WHERE has_row
          UNION ALL SELECT concat_ws(' ', key, owner) FROM shardmaster.lookup_conflict",
    )
}

/// Those of the rows that are where their tenants are routed to.
fn rows(cluster: &Cluster, master: &mut Client) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (server, shard) in ["shard_a", "shard_b"].into_iter().enumerate() {
        let tenants: Vec<String> = master
            .query("SELECT key FROM shard_entries() WHERE write_shard = $1", &[&shard])
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect();
        let mut client = cluster.servers[server].superuser(DATABASE).unwrap();
        let query = "SELECT DISTINCT concat_ws(' ', email, tenant) FROM users WHERE email IS NOT NULL AND tenant = ANY ($1)";
        found.extend(client.query(query, &[&tenants]).unwrap().iter().map(|row| row.get::<_, String>(0)));
    }
    found
}

/// At rest both are the same.
fn wait_equal(cluster: &Cluster, master: &mut Client) {
    let mut last = (BTreeSet::new(), BTreeSet::new());
    let outcome = wait::until("pairs are rows", LIMIT, || {
        last = (pairs(master), rows(cluster, master));
        Ok((last.0 == last.1).then_some(()))
    });
    if outcome.is_err() {
        let extra: Vec<&String> = last.0.difference(&last.1).take(5).collect();
        let missing: Vec<&String> = last.1.difference(&last.0).take(5).collect();
        let shown: Vec<String> = master
            .query("SELECT l::text FROM shard_lookups() l", &[])
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect();
        panic!(
            "{} pairs, {} rows; too many: {extra:?}, missing: {missing:?}; {shown:?}",
            last.0.len(),
            last.1.len()
        );
    }
}

fn route(master: &mut Client, key: &str) -> String {
    let row = master.query_one("SELECT shard_key FROM shard_route($1, 'write', 'emails')", &[&key]);
    row.map_or_else(|error| state_of(&error).to_owned(), |row| row.get(0))
}

fn wait_route(master: &mut Client, key: &str, shard: &str) {
    wait::until(key, LIMIT, || Ok((route(master, key) == shard).then_some(()))).unwrap();
}

fn insert(from: u32, to: u32, tenant: &str) -> String {
    format!(
        "INSERT INTO users SELECT '{tenant}', i, '{tenant}' || i || '@x.org' FROM generate_series({from}, {to}) i"
    )
}

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

/// Writers that change, delete and insert keys all the time, each of its own tenant.
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
            // What is refused, since the tenant is moving, is tried no more.
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

/// An entry whose transaction commits long after others were taken, and one that is prepared.
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

/// Writers that were there before anybody captured what they write.
#[test]
fn a_fill_waits_for_those_who_were_there_before() {
    let cluster = stage(&[]);
    let mut early = cluster.servers[0].superuser(DATABASE).unwrap();
    early.batch_execute("BEGIN; INSERT INTO users VALUES ('a', 1, 'early@x.org')").unwrap();
    let mut master = cluster.superuser().unwrap();
    master.batch_execute(ADD).unwrap();
    // CREATE TRIGGER waits for it, and says so.
    let waits = "SELECT count(*) > 0 FROM shard_lookups() WHERE shard_key = 'shard_a' AND state <> 'filled' AND waits_for LIKE 'lock on%'";
    wait::until_true(&mut master, "it waits", LIMIT, waits).unwrap();
    assert_eq!(route(&mut master, "early@x.org"), "55000");
    early.batch_execute("COMMIT").unwrap();
    wait_filled(&mut master);
    assert_eq!(route(&mut master, "early@x.org"), "shard_a");
}

/// A worker that dies, and a server that is restarted, at each point: nothing is lost, nothing stays that has gone.
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
        for struck in ["exit", "kill", "shard"] {
            // Each time from nothing; what a queue brings is struck once the look-up is filled.
            let fault = if struck == "shard" { "hold" } else { struck };
            let fault = format!("{point}={fault}");
            let is_of_fill = number < 3;
            if is_of_fill {
                cluster.fault(&fault).unwrap();
            }
            master = cluster.superuser().unwrap();
            let again = "SELECT shard_table_drop('users', 'emails'); SELECT shard_table_add('users', 'email', 'emails')";
            master.batch_execute(if number == 0 && struck == "exit" { ADD } else { again }).unwrap();
            if !is_of_fill {
                wait_filled(&mut master);
                cluster.fault(&fault).unwrap();
            }
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
            match struck {
                "shard" => {
                    wait_held(&cluster, point);
                    cluster.servers[0].stop(Stop::Immediate).unwrap();
                    cluster.servers[0].run().unwrap();
                    cluster.fault("").unwrap();
                }
                _ => {
                    let fired = format!(
                        "SELECT count(*) > 0 FROM shardmaster.fault_fired WHERE fault = '{point}={struck}'"
                    );
                    wait::until("it struck", LIMIT, || {
                        let asked = cluster
                            .superuser()
                            .and_then(|mut client| Ok(client.query_one(&fired, &[])?.get::<_, bool>(0)));
                        Ok(asked.unwrap_or(false).then_some(()))
                    })
                    .unwrap();
                }
            }
            wait::until("the master is back", LIMIT, || Ok(cluster.superuser().ok())).unwrap();
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
    // The first one goes: a session that knew it forgets it.
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
    // A fill leaves it alone.
    by_superuser(&cluster, 1, "TRUNCATE users");
    by_superuser(&cluster, 1, "INSERT INTO users VALUES ('c', 1, 'other@x.org')");
    wait_route(&mut master, "other@x.org", "shard_b");
    wait_filled(&mut master);
    assert_eq!(route(&mut master, "k@x.org"), "shard_b");
    // Its row comes, and goes.
    by_superuser(&cluster, 1, "INSERT INTO users VALUES ('c', 2, 'k@x.org')");
    let has_row = "SELECT count(*) = 1 FROM shardmaster.lookup_entry WHERE key = 'k@x.org' AND has_row";
    wait::until_true(&mut master, "its row", LIMIT, has_row).unwrap();
    let until: Option<std::time::SystemTime> =
        master.query_one(&claim("k@x.org", "c", "1 min"), &[]).unwrap().get(0);
    assert_eq!(until, None);
    by_superuser(&cluster, 1, "DELETE FROM users WHERE id = 2");
    wait_route(&mut master, "k@x.org", "42704");
    // One without a row ends, and the next may have it.
    master.batch_execute(&claim("m@x.org", "c", "1 ms")).unwrap();
    wait_route(&mut master, "m@x.org", "42704");
    master.batch_execute(&claim("m@x.org", "a", "1 min")).unwrap();
    assert_eq!(route(&mut master, "m@x.org"), "shard_a");
}

/// Rows that were there before their tenant was routed to them, and some that stay behind.
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
    assert_eq!(
        (route(&mut master, "left@x.org"), route(&mut master, "d1@x.org")),
        ("shard_a".into(), "42704".into())
    );
    master.batch_execute("SELECT shard_unassign('d')").unwrap();
    wait_equal(&cluster, &mut master);
}

/// A queue that takes no more: writers go on, and the look-up is filled again.
#[test]
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

fn leftovers(cluster: &Cluster, server: usize) -> i64 {
    let query = "SELECT count(*) FROM (SELECT FROM pg_trigger WHERE tgname LIKE '%shardmaster%'
                       UNION ALL SELECT FROM pg_namespace WHERE nspname = 'shardmaster_agent') l";
    cluster.servers[server].superuser(DATABASE).unwrap().query_one(query, &[]).unwrap().get(0)
}

#[test]
fn what_is_dropped_leaves_nothing_on_the_shards() {
    let mut cluster = stage(&[]);
    let mut master = add(&cluster);
    by_superuser(&cluster, 0, &insert(1, 10, "a"));
    wait_equal(&cluster, &mut master);
    assert_eq!(error(&mut master, "SELECT shard_table_drop('users')").0, "55006");
    assert_eq!(error(&mut master, "SELECT shard_keyspace_drop('emails')").0, "55006");
    // One shard is away: what is left there is said, and taken away when it is back.
    cluster.servers[1].stop(Stop::Immediate).unwrap();
    master
        .batch_execute("SELECT shard_table_drop('users', 'emails'); SELECT shard_keyspace_drop('emails')")
        .unwrap();
    wait::until("nothing is left", LIMIT, || Ok((leftovers(&cluster, 0) == 0).then_some(()))).unwrap();
    let said = "SELECT count(*) > 0 FROM shard_status() WHERE item LIKE 'look-up \"emails\" on shard \"shard_b\"' AND NOT ok";
    wait::until_true(&mut master, "it is said", LIMIT, said).unwrap();
    cluster.servers[1].run().unwrap();
    wait::until("nothing is left", LIMIT, || Ok((leftovers(&cluster, 1) == 0).then_some(()))).unwrap();
    wait::until_true(
        &mut master,
        "nobody works",
        LIMIT,
        "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'shardmaster looker'",
    )
    .unwrap();

    // What a master has forgotten a cleanup takes away.
    master.batch_execute(ADD).unwrap();
    wait_filled(&mut master);
    master
        .batch_execute("SELECT shard_table_drop('users', 'emails'); DELETE FROM shardmaster.lookup_removal")
        .unwrap();
    let removed: String =
        master.query_one("SELECT object || ' ' || action FROM shard_cleanup('shard_a')", &[]).unwrap().get(0);
    assert_eq!(removed, "look-up \"emails\" removed");
    assert_eq!(leftovers(&cluster, 0), 0);
}

#[test]
fn what_a_look_up_cannot_is_refused_by_name() {
    let cluster = stage(&[]);
    let mut master = cluster.superuser().unwrap();
    for (call, state) in [
        ("SELECT shard_keyspace_add('emails', 'lookup')", "22023"),
        ("SELECT shard_keyspace_add('emails', 'lookup', of => 'nothing')", "42704"),
        ("SELECT shard_keyspace_add('emails', 'lookup', buckets => 4, of => 'default')", "22023"),
        ("SELECT shard_keyspace_add('emails', 'lookup', shards => '{shard_a}', of => 'default')", "22023"),
        ("SELECT shard_keyspace_add('emails', 'directory', of => 'default')", "22023"),
        ("SELECT shard_keyspace_add('emails', 'lookup', key_type => 'json', of => 'default')", "22023"),
        ("SELECT shard_keyspace_add('default', 'lookup', of => 'default')", "42710"),
        ("SELECT shard_lookup('x', 'default')", "22023"),
        ("SELECT shard_lookup('x', 'nothing')", "42704"),
        ("SELECT shard_lookup_claim('x', 'a', 'default')", "22023"),
        ("SELECT * FROM shard_lookup_conflicts('default')", "22023"),
    ] {
        let (found, message) = error(&mut master, call);
        assert_eq!(found, state, "{call}: {message}");
    }
    master.batch_execute("SELECT shard_keyspace_add('emails', 'lookup', of => 'default')").unwrap();
    for (call, state) in [
        ("SELECT shard_keyspace_add('emails', 'hash', buckets => 4)", "42710"),
        ("SELECT shard_keyspace_add('emails', 'lookup', of => 'default')", "42710"),
        ("SELECT shard_keyspace_add('others', 'lookup', of => 'emails')", "0A000"),
        ("SELECT shard_table_add('others', 'email', 'emails')", "42704"),
        ("SELECT shard_table_add('users', 'tenant', 'emails')", "22023"),
        ("SELECT shard_table_add('users', 'email', 'emails', key_type => 'bigint')", "22023"),
        ("SELECT shard_table_drop('users', 'emails')", "42704"),
        ("SELECT shard_lookup_claim('x', 'a', 'emails')", "55000"),
        ("SELECT shard_route('x', 'write', 'emails')", "55000"),
        ("SELECT shard_assign('x', 'shard_a', 'emails')", "0A000"),
        ("SELECT shard_assign_many('{x}', 'shard_a', 'emails')", "0A000"),
        ("SELECT shard_assign_bucket(1, 'shard_a', 'emails')", "0A000"),
        ("SELECT shard_assign_range('a', 'b', 'shard_a', 'emails')", "0A000"),
        ("SELECT shard_unassign('x', 'emails')", "0A000"),
        ("SELECT shard_join_ranges('emails')", "0A000"),
        ("SELECT shard_range_midpoint('emails', NULL, NULL)", "0A000"),
        ("SELECT * FROM shard_route_range('a', 'b', 'read', 'emails')", "0A000"),
        ("SELECT * FROM shard_entries('emails')", "0A000"),
        ("SELECT shard_routing_version('emails')", "0A000"),
        ("SELECT * FROM shard_routing_history('emails')", "0A000"),
        ("SELECT shard_route_at('x', 1, 'emails')", "0A000"),
        ("SELECT shard_routing_rollback(1, 'emails')", "0A000"),
        ("SELECT shard_place_tenant('x', keyspace => 'emails')", "0A000"),
        ("SELECT shard_split_plan('shard_a', 'shard_b', '{x}', keyspace => 'emails')", "0A000"),
        ("SELECT shard_split_plan_range('shard_a', 'shard_b', 'a', 'b', keyspace => 'emails')", "0A000"),
        ("SELECT shard_split_plan_all('shard_a', 'shard_b', keyspace => 'emails')", "0A000"),
        ("SELECT * FROM shard_query_json('SELECT 1', keyspace => 'emails')", "0A000"),
        ("SELECT * FROM shard_misplaced('emails')", "0A000"),
        ("SELECT * FROM shard_unassigned('emails')", "0A000"),
        ("CALL shard_misplaced_move('shard_a', '{x}', 'emails')", "0A000"),
        ("CALL shard_misplaced_delete('shard_a', '{x}', 'emails')", "0A000"),
        ("CALL shard_execute('SELECT 1', keyspace => 'emails')", "0A000"),
        ("SELECT * FROM shard_import('emails', 'imported')", "0A000"),
        ("SELECT shard_gateway_config('nginx', 'emails')", "0A000"),
    ] {
        let (found, message) = error(&mut master, call);
        assert_eq!(found, state, "{call}: {message}");
    }
    master.batch_execute("SELECT shard_table_add('users', 'email', 'emails')").unwrap();
    assert_eq!(
        texts(&mut master, "SELECT table_name || ' ' || shard_by FROM shard_tables('emails')").len(),
        1
    );
    let split = Split::plan(&cluster, "shard_a", "shard_b", &["a"]).unwrap();
    let map = format!("SELECT shard_split_map({}, 'users', 'email', 'lower(email)')", split.id);
    assert_eq!(error(&mut master, &map).0, "0A000");
}

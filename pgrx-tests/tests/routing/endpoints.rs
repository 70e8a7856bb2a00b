//! Endpoints of shards, which are shown and changed at run time.

use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, MOVER};
use shardmaster_tests::env::is_long_run;
use shardmaster_tests::fixture::{self, LIMIT, insert, outcome, plan, rows, to_pending};
use shardmaster_tests::server::Stop;
use shardmaster_tests::vault::Vault;
use shardmaster_tests::wait;

/// Returns the items of `shard_check` for a shard, and whether each is ok.
fn checked(cluster: &Cluster, shard: &str) -> Vec<(String, bool, String)> {
    let query = "SELECT item, ok, detail || coalesce(' HINT ' || hint, '') FROM shard_check($1)";
    let rows = cluster.superuser().unwrap().query(query, &[&shard]).unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

fn item<'a>(found: &'a [(String, bool, String)], name: &str) -> &'a (String, bool, String) {
    found.iter().find(|(item, ..)| item == name).unwrap_or_else(|| panic!("{name} is not in {found:?}"))
}

/// A typo is corrected while a split runs, and its next step connects to the right place.
#[test]
#[ignore = "make test-all: a split meanwhile; make test has sides_that_are_taken_for_each_other_lose_no_row"]
fn a_split_follows_an_endpoint_that_is_changed() {
    let cluster = fixture::cluster(&["shardmaster.remote_timeout = 3000"]);
    let split = plan(&cluster);
    to_pending(&split);
    let mut master = cluster.superuser().unwrap();
    let right = cluster.servers[1].conninfo(DATABASE, MOVER);
    master.batch_execute("SELECT shard_set_endpoint('shard_b', host => '/nowhere')").unwrap();
    let says = "SELECT EXISTS (SELECT FROM shardmaster.split_plan WHERE id = 1 AND activity = 'retrying' AND waiting_for LIKE '%/nowhere%')";
    wait::until_true(&mut master, "the split to say where it does not come to", LIMIT, says).unwrap();
    fixture::source(&cluster)
        .batch_execute("UPDATE items SET val = 'meanwhile' WHERE tenant = 'moves'")
        .unwrap();
    master.execute("SELECT shard_set_endpoint('shard_b', $1)", &[&right]).unwrap();
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    assert!(rows(&cluster, 1).values().all(|val| val.starts_with("meanwhile ")));
    split.finish(LIMIT).unwrap();
}

/// The facts about a shard that a newcomer wants to know.
#[test]
fn a_shard_is_looked_at() {
    let mut cluster = fixture::cluster(&[]);
    let found = checked(&cluster, "shard_b");
    for name in
        ["connect", "round trip", "clock", "role", "primary", "encryption", "schema", "version", "agent"]
    {
        assert!(item(&found, name).1, "{:?}", item(&found, name));
    }
    // The tests' servers may lose commits in a crash.
    assert!(!item(&found, "durability").1);
    assert!(item(&found, "right to write without firing triggers").1);
    let take = format!("REVOKE SET ON PARAMETER session_replication_role FROM {MOVER}");
    cluster.servers[1].superuser(DATABASE).unwrap().batch_execute(&take).unwrap();
    let found = checked(&cluster, "shard_b");
    let right = item(&found, "right to write without firing triggers");
    assert!(!right.1 && right.2.contains("GRANT SET"), "{right:?}");
    cluster.servers[1].stop(Stop::Fast).unwrap();
    let found = checked(&cluster, "shard_b");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(!found[0].1 && found[0].0 == "connect", "{found:?}");
    let refused = "SELECT shard_add('third', host => '/nowhere', checked => true)";
    let refused = cluster.superuser().unwrap().batch_execute(refused).unwrap_err();
    assert_eq!(fixture::state_of(&refused), "55000");
    let known = "SELECT FROM shard_topology() WHERE shard_key = 'third'";
    assert!(cluster.superuser().unwrap().query(known, &[]).unwrap().is_empty(), "it was not added");
}

/// Readers of a moving key use the primary until the split has ended.
#[test]
#[ignore = "make test-all: standbys; make test has a_shard_is_looked_at"]
fn readers_go_to_a_standby_while_nothing_moves() {
    let cluster = fixture::cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_set_endpoint('shard_a', read_conninfo => 'host=standby_a'),
                    shard_set_endpoint('shard_b', read_conninfo => 'host=standby_b')",
        )
        .unwrap();
    let mut client = cluster.superuser().unwrap();
    let mut reads = |key: &str| -> String {
        client.query_one("SELECT conninfo FROM shard_route($1, 'read')", &[&key]).unwrap().get(0)
    };
    assert_eq!([reads("moves"), reads("stays")], ["host=standby_a", "host=standby_a"]);
    let split = plan(&cluster);
    to_pending(&split);
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    assert!(!reads("moves").contains("standby") && reads("stays") == "host=standby_a");
    assert_eq!(
        outcome(&mut cluster.servers[1].connect(DATABASE, CLIENT).unwrap(), &insert("moves", 90_000)),
        "ok"
    );
    split.finish(LIMIT).unwrap();
    assert_eq!(reads("moves"), "host=standby_b");
    let write: String = master.query_one("SELECT conninfo FROM shard_route('moves')", &[]).unwrap().get(0);
    assert!(!write.contains("standby"));
}

/// A session costs libpq's own messages and one more, with the pinned settings, its owner, and its server.
#[test]
#[ignore = "make test-all: what a session costs; make test has split::round_trips::a_step_that_finds_nothing_is_three_ways_there_and_back"]
fn a_session_begins_with_one_message() {
    let cluster = fixture::cluster(&["log_statement = all", "log_line_prefix = '%p %a '"]);
    let split = plan(&cluster);
    fixture::finished(&split);
    for (server, purposes) in [(0, ["reader", "control"]), (1, ["writer", "writer"])] {
        let log = std::fs::read_to_string(cluster.servers[server].log_path()).unwrap();
        for purpose in purposes {
            let name = format!(" shardmaster split {} {purpose} ", split.id);
            let mut begun = 0;
            let mut messages: std::collections::BTreeMap<&str, usize> = Default::default();
            // The further lines of a message begin differently.
            let is_message = |line: &&str| line.contains("statement: ") || line.contains("execute ");
            for line in log.lines().filter(|line| line.contains(&name)).filter(is_message) {
                let number = messages.entry(line.split(' ').next().unwrap()).or_default();
                *number += 1;
                begun += usize::from(*number == 1);
                let opens =
                    ["SET role", "session_replication_role", "shardmaster_agent.mover", "pg_control_system"];
                let is_opening = opens.iter().any(|text| line.contains(text));
                assert!(*number == 1 || !is_opening, "message {number}: {line}");
            }
            assert!(begun > 0, "no session of {purpose}");
        }
    }
}

/// An endpoint leads elsewhere by now: a target's to its source, or each to the other. The split's objects
/// show which side a server was. Nothing is copied onto itself, and nothing is deleted for a copy.
#[test]
fn sides_that_are_taken_for_each_other_lose_no_row() {
    let cluster = fixture::cluster(&["shardmaster.remote_timeout = 3000"]);
    let ends = [0, 1].map(|server| cluster.servers[server].conninfo(DATABASE, MOVER));
    let lead = |a: usize, b: usize| {
        let call = "SELECT shard_set_endpoint('shard_a', $1), shard_set_endpoint('shard_b', $2)";
        cluster.superuser().unwrap().execute(call, &[&ends[a], &ends[b]]).unwrap();
    };
    let some_time = || std::thread::sleep(std::time::Duration::from_secs(4));
    let source = |count: usize| assert_eq!(rows(&cluster, 0).len(), count);
    let split = plan(&cluster);
    to_pending(&split);
    lead(0, 0);
    let _ = split.call("cutover");
    some_time();
    source(300);
    lead(1, 0);
    let _ = split.call("resume");
    some_time();
    source(300);
    lead(0, 1);
    let _ = split.call("resume");
    let _ = split.call("cutover");
    split.wait("completed", LIMIT).unwrap_or_else(|error| panic!("{error}: {}", split.describe()));
    let moved = rows(&cluster, 1);
    assert_eq!(moved.len(), 300);
    for (a, b) in [(0, 0), (1, 0), (1, 1)] {
        lead(a, b);
        let _ = split.call("finish");
        some_time();
        eprintln!("{a} {b}: {}", split.describe());
        source(300);
        assert_eq!(rows(&cluster, 1), moved);
    }
    lead(0, 1);
    let _ = split.call("resume");
    split.finish(LIMIT).unwrap_or_else(|error| panic!("{error}: {}", split.describe()));
    source(0);
    assert_eq!(rows(&cluster, 1), moved);
    split.drop_guard().unwrap();
}

/// Setting an endpoint and setting its credential take their locks in the same order.
#[test]
fn endpoints_and_credentials_are_changed_at_once() {
    let vault = Vault::new("scram-sha-256", &["deadlock_timeout = 100"]).unwrap();
    vault.set_password("first").unwrap();
    vault.set_credential("b", "password", r#"{"password": "first"}"#).unwrap();
    vault.lead_to(&vault.conninfo(), "b").unwrap();
    let calls = [
        r#"SELECT shard_credential_set('b', 'password', '{"password": "first"}')"#,
        "SELECT shard_set_endpoint('shard_b', notes => clock_timestamp()::text)",
        "SELECT shard_set_endpoint('shard_b', notes => clock_timestamp()::text, active => random() < 0.5)",
        "SELECT shard_set_status('shard_b', CASE WHEN random() < 0.5 THEN 'active' ELSE 'disabled' END)",
        "SELECT shard_keychain_rotate()",
    ];
    let until =
        std::time::Instant::now() + std::time::Duration::from_secs(if is_long_run() { 15 } else { 4 });
    std::thread::scope(|scope| {
        for call in calls {
            let mut session = vault.cluster.master.connect(DATABASE, "postgres").unwrap();
            scope.spawn(move || {
                while std::time::Instant::now() < until {
                    session.batch_execute(call).unwrap_or_else(|error| panic!("{call}: {error:?}"));
                }
            });
        }
    });
    vault.require_connects().unwrap();
}

//! Lookup indexes with obstacles: odd columns and letters, uncommitted claims, shards that are away.

use shardmaster_tests::cluster::{DATABASE, OWNER};
use shardmaster_tests::fixture::{LIMIT, by_superuser, by_superusers};
use shardmaster_tests::lookups::{add, insert, route, stage, wait_equal, wait_filled, wait_route};
use shardmaster_tests::queries::error;
use shardmaster_tests::repair::wait_held;
use shardmaster_tests::wait;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

#[test]
#[ignore = "make test-all: each type; make test has lookups::consistency::rows_that_are_there_and_those_that_come_are_found"]
fn columns_of_all_types_are_taken() {
    let cluster = stage(&[]);
    by_superusers(
        &cluster,
        &format!(
            "SET ROLE {OWNER}; CREATE DOMAIN short AS varchar(9);
             CREATE TABLE item (of varchar(9), id numeric(9,2), small smallint, letters char(9), name varchar(9), domain short,
                                number uuid, made text GENERATED ALWAYS AS ('m' || letters) STORED)"
        ),
    );
    by_superuser(
        &cluster,
        0,
        "INSERT INTO item VALUES ('a', 1.50, 7, 'l', 'n ', 'd', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11');
         INSERT INTO item VALUES ('b', 'NaN')",
    );
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("SELECT shard_table_add('item', 'of')").unwrap();
    let columns = [
        ("id", "numeric", "1.5000"),
        ("small", "numeric", "7.0"),
        ("letters", "character", "l  "),
        ("name", "text", "n "),
        ("domain", "text", "d"),
        ("number", "uuid", "{A0EEBC999C0B4EF8BB6D6BB9BD380A11}"),
        ("made", "text", "ml"),
    ];
    for (column, key_type, _) in columns {
        master
            .batch_execute(&format!(
                "SELECT shard_keyspace_add('by_{column}', 'lookup', key_type => '{key_type}', of => 'default');
                 SELECT shard_table_add('item', '{column}', 'by_{column}')"
            ))
            .unwrap();
    }
    let filled =
        "SELECT count(*) = 14 AND bool_and(state = 'filled' AND waits_for IS NULL) FROM shard_lookups()";
    wait::until_true(&mut master, "all are filled", LIMIT, filled).unwrap();
    for (column, _, key) in columns {
        let call = format!("SELECT shard_lookup('{key}', 'by_{column}')");
        let owner: String = master.query_one(&call, &[]).unwrap().get(0);
        assert_eq!(owner, "a", "{call}");
    }
    let owner: String = master.query_one("SELECT shard_lookup('nan', 'by_id')", &[]).unwrap().get(0);
    assert_eq!(owner, "b");
}

/// No row there can have this key, and other keys are still found.
#[test]
#[ignore = "make test-all: lookup indexes; make test has queries::columns::a_letter_that_a_shards_encoding_lacks_fails_no_query"]
fn a_letter_that_a_shards_encoding_lacks_keeps_nothing_waiting() {
    let cluster = stage(&[]);
    let mut master = add(&cluster);
    by_superuser(
        &cluster,
        1,
        "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
    );
    let mut latin = cluster.servers[1].superuser("latin").unwrap();
    latin
        .batch_execute(
            "CREATE TABLE users (tenant text, id int, email text, PRIMARY KEY (tenant, id)); CREATE INDEX ON users (email)",
        )
        .unwrap();
    let conninfo = cluster.servers[1].conninfo("latin", "postgres");
    master.execute("SELECT shard_add('latin', $1)", &[&conninfo]).unwrap();
    master.batch_execute("SELECT shard_assign('l', 'latin')").unwrap();
    let filled =
        "SELECT count(*) = 3 AND bool_and(state = 'filled') FROM shard_lookups() WHERE keyspace = 'emails'";
    wait::until_true(&mut master, "filled", LIMIT, filled).unwrap();
    // A claim asks for all pairs, and a row may be on a shard to which nobody is routed.
    let claim = "SELECT shard_lookup_claim('日@x.org', 'l', 'emails')";
    wait::until("the claim", LIMIT, || Ok(master.batch_execute(claim).ok())).unwrap();
    by_superuser(&cluster, 0, "INSERT INTO users VALUES ('l', 1, '月@x.org')");
    latin.batch_execute("INSERT INTO users VALUES ('l', 1, 'é@x.org')").unwrap();
    wait_route(&mut master, "é@x.org", "latin");
    latin.batch_execute("TRUNCATE users; INSERT INTO users VALUES ('l', 2, 'ü@x.org')").unwrap();
    wait_route(&mut master, "ü@x.org", "latin");
    wait_route(&mut master, "é@x.org", "42704");
    wait::until_true(&mut master, "filled again", LIMIT, filled).unwrap();
    assert_eq!(route(&mut master, "日@x.org"), "latin");
    let waits = "SELECT count(*) = 0 FROM shard_lookups() WHERE waits_for IS NOT NULL OR waiting > 0";
    wait::until_true(&mut master, "nothing waits", LIMIT, waits).unwrap();
}

/// An uncommitted claim of a key blocks neither new entries nor a fill.
#[test]
fn a_claim_that_is_not_committed_keeps_no_other_key_waiting() {
    let cluster = stage(&[]);
    let mut master = add(&cluster);
    let mut open = cluster.superuser().unwrap();
    open.batch_execute("BEGIN; SELECT shard_lookup_claim('a7@x.org', 'a', 'emails')").unwrap();
    by_superuser(&cluster, 0, &insert(1, 20, "a"));
    wait_route(&mut master, "a1@x.org", "shard_a");
    wait_route(&mut master, "a20@x.org", "shard_a");
    let said = "SELECT count(*) = 1 FROM shard_lookups() WHERE shard_key = 'shard_a' AND waits_for LIKE 'a lock on%'";
    wait::until_true(&mut master, "it is said", LIMIT, said).unwrap();
    assert_eq!(route(&mut master, "a7@x.org"), "42704");
    by_superuser(&cluster, 0, "CREATE TABLE again AS SELECT * FROM users; TRUNCATE users");
    by_superuser(&cluster, 0, &format!("{}; INSERT INTO users SELECT * FROM again", insert(21, 1500, "a")));
    wait_route(&mut master, "a1500@x.org", "shard_a");
    // Everything has been read by then, and nobody but its users holds a lock on the table.
    let held =
        "SELECT count(*) = 0 FROM pg_locks WHERE relation = 'users'::regclass AND pid <> pg_backend_pid()";
    wait::until_true(&mut cluster.servers[0].superuser(DATABASE).unwrap(), "no lock", LIMIT, held).unwrap();
    open.batch_execute("COMMIT").unwrap();
    wait_filled(&mut master);
    assert_eq!(route(&mut master, "a7@x.org"), "shard_a");
    wait_equal(&cluster, &mut master);
}

/// Rows on the wrong shard are checked with the right one. A shard that is away does not block a fill.
#[test]
#[ignore = "make test-all: a fill; make test has lookups::consistency::a_shard_that_hangs_holds_up_its_own_keys_alone"]
fn a_fill_waits_for_no_other_shard() {
    let cluster = stage(&["shardmaster.remote_timeout = '10s'"]);
    let mut master = add(&cluster);
    cluster.servers[1].hang().unwrap();
    by_superuser(&cluster, 0, "TRUNCATE users");
    by_superuser(&cluster, 0, &format!("{}; {}", insert(1, 1500, "c"), insert(1, 1500, "a")));
    wait_route(&mut master, "a1500@x.org", "shard_a");
    let filled = "SELECT count(*) = 1 FROM shard_lookups() WHERE shard_key = 'shard_a' AND state <> 'filling' AND waiting = 0";
    wait::until_true(&mut master, "shard_a is filled", LIMIT, filled).unwrap();
    cluster.servers[1].wake().unwrap();
    wait_equal(&cluster, &mut master);
}

/// After VACUUM FULL the rows that were read are in other places, and other rows in theirs.
#[test]
fn a_queue_that_is_rewritten_loses_nothing() {
    let cluster = stage(&[]);
    let mut master = add(&cluster);
    cluster.hold("lookup_consumed").unwrap();
    by_superuser(&cluster, 0, &insert(1, 5000, "a"));
    wait_held(&cluster, "lookup_consumed");
    cluster.hold("lookup_committed").unwrap();
    wait_held(&cluster, "lookup_committed");
    by_superuser(&cluster, 0, "VACUUM FULL shardmaster_agent.lookup_queue_1");
    cluster.fault("").unwrap();
    wait_equal(&cluster, &mut master);
    wait_filled(&mut master);
}

/// The row that a claim has found may be gone by then.
#[test]
fn a_claim_beside_a_row_outlives_it() {
    let cluster = stage(&[]);
    let mut master = add(&cluster);
    by_superuser(&cluster, 0, "INSERT INTO users VALUES ('a', 1, 'k@x.org')");
    wait_route(&mut master, "k@x.org", "shard_a");
    cluster.hold("lookup_looked").unwrap();
    by_superuser(&cluster, 0, "DELETE FROM users");
    wait_held(&cluster, "lookup_looked");
    let claim = |owner: &str| format!("SELECT shard_lookup_claim('k@x.org', '{owner}', 'emails', '1 hour')");
    master.batch_execute(&claim("a")).unwrap();
    cluster.fault("").unwrap();
    let taken = "SELECT count(*) = 1 FROM shardmaster.lookup_entry WHERE key = 'k@x.org' AND NOT has_row";
    wait::until_true(&mut master, "its row is gone", LIMIT, taken).unwrap();
    assert_eq!(error(&mut master, &claim("c")).0, "23505");
    assert_eq!(route(&mut master, "k@x.org"), "shard_a");
}

/// A transaction that has written only to other tables does not matter. One that has written to this table is named.
#[test]
#[ignore = "make test-all: writers of other tables; make test has lookups::consistency::a_fill_waits_for_those_who_were_there_before"]
fn a_fill_waits_for_writers_of_its_table_alone() {
    let cluster = stage(&[]);
    let mut elsewhere = cluster.servers[0].superuser("postgres").unwrap();
    let mut beside = cluster.servers[0].superuser(DATABASE).unwrap();
    for client in [&mut elsewhere, &mut beside] {
        client.batch_execute("BEGIN; CREATE TABLE other (i int)").unwrap();
    }
    let mut prepared = cluster.servers[0].superuser(DATABASE).unwrap();
    prepared.batch_execute("BEGIN; CREATE TABLE another (i int); PREPARE TRANSACTION 'another'").unwrap();
    by_superuser(&cluster, 0, &insert(1, 10, "a"));
    let mut master = add(&cluster);
    wait_equal(&cluster, &mut master);
    prepared.batch_execute("BEGIN; DELETE FROM users WHERE id = 1; PREPARE TRANSACTION 'mine'").unwrap();
    master
        .batch_execute("UPDATE shardmaster.lookup_shard SET state = 'new' WHERE shard_key = 'shard_a'")
        .unwrap();
    let waits = "SELECT count(*) = 1 FROM shard_lookups() WHERE waits_for LIKE 'the end of 1 transactions%: prepared transaction \"mine\"'";
    wait::until_true(&mut master, "it waits", LIMIT, waits).unwrap();
    prepared.batch_execute("COMMIT PREPARED 'mine'").unwrap();
    wait_filled(&mut master);
    wait_equal(&cluster, &mut master);
    prepared.batch_execute("ROLLBACK PREPARED 'another'").unwrap();
}

/// A tenant that was just placed can claim its keys at once, also in the same transaction. Only rows of other
/// owners matter.
#[test]
#[ignore = "make test-all: an owner that is new; make test has keys_are_claimed_while_owners_are_assigned_all_the_time"]
fn an_owner_that_was_just_assigned_claims_keys() {
    let cluster = stage(&[]);
    let mut master = add(&cluster);
    master
        .batch_execute(
            "BEGIN; SELECT shard_assign('d', 'shard_b'); SELECT shard_lookup_claim('d@x.org', 'd', 'emails'); COMMIT",
        )
        .unwrap();
    assert_eq!(route(&mut master, "d@x.org"), "shard_b");
    master.batch_execute("BEGIN; SELECT shard_assign('e', 'shard_b')").unwrap();
    assert_eq!(error(&mut master, "SELECT shard_lookup_claim('e@x.org', 'd', 'emails')").0, "55000");
    master.batch_execute("ROLLBACK").unwrap();
}

/// Assignments made meanwhile wait for a claim.
#[test]
fn keys_are_claimed_while_owners_are_assigned_all_the_time() {
    static ENDS: AtomicBool = AtomicBool::new(false);
    let cluster = stage(&[]);
    let mut master = add(&cluster);
    let mut other = cluster.superuser().unwrap();
    let assigns = thread::spawn(move || {
        for number in 0.. {
            if ENDS.load(Ordering::Relaxed) {
                return;
            }
            other.query_one(&format!("SELECT shard_assign('t{number}', 'shard_b')"), &[]).unwrap();
        }
    });
    master.batch_execute("SET shardmaster.route_wait_timeout = '60s'").unwrap();
    for number in 0..5 {
        master.batch_execute(&format!("SELECT shard_lookup_claim('k{number}', 'a', 'emails')")).unwrap();
    }
    ENDS.store(true, Ordering::Relaxed);
    assigns.join().unwrap();
}

//! A master that is restored to a time before its reference tables had another origin, or were removed. The
//! writes of clients since then stay, until an operator says which shard is the origin.

use super::replication::{ADD, WAIT, alike, all, contents, master, states, zoo};
use shardmaster_tests::backups::{Disk, Dump};
use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{LIMIT, by_owner as run, by_superuser};
use shardmaster_tests::server::Stop;
use shardmaster_tests::wait;
use std::time::Duration;

const DROP: &str = "SELECT shard_table_drop('countries')";
const TAKEN_OUT: [&str; 2] = ["was taken out", "shard_table_drop"];
const SHARDS: [&str; 3] = ["shard_a", "shard_b", "shard_c"];

/// Waits longer than the worker needs to copy a table.
fn some_turns() {
    std::thread::sleep(Duration::from_secs(3));
}

/// Waits until nothing is left of the removed tables.
fn forgotten(cluster: &Cluster) {
    let query = "SELECT count(*) = 0 FROM shardmaster.reference_table WHERE dropped";
    wait::until_true(&mut cluster.superuser().unwrap(), "it to be forgotten", LIMIT, query).unwrap();
}

fn add(cluster: &Cluster, table: &str, origin: &str) {
    master(cluster, &ADD.replace("countries", table).replace("shard_a", origin));
}

/// Checks that a shard does not follow, and shows the reason and the remedy.
fn fails(cluster: &Cluster, (table, shard): (&str, &str), [why, hint]: [&str; 2]) {
    let query = format!(
        "SELECT concat_ws(' ', state, error, 'HINT:', hint) FROM shard_reference_tables()
          WHERE table_name = '{table}' AND shard = '{shard}'"
    );
    let mut session = cluster.superuser().unwrap();
    let outcome = wait::until(&format!("{table} on {shard} to fail"), LIMIT, || {
        let text = all(&mut session, &query);
        let (said, help) = text.split_once("HINT:").unwrap_or_default();
        Ok((said.starts_with("failed") && said.contains(why) && help.contains(hint)).then_some(()))
    });
    assert!(outcome.is_ok(), "{}", all(&mut session, &query));
}

fn has(cluster: &Cluster, server: usize, table: &str, what: &str) -> bool {
    contents(cluster, server, table).iter().any(|row| row.contains(what))
}

fn cleaned(cluster: &Cluster, shard: &str) -> String {
    all(&mut cluster.superuser().unwrap(), &format!("SELECT action FROM shard_cleanup('{shard}')"))
}

/// The restored master has another state by now, and the shards' own is not lost.
fn keeps_what_was_written_at(cluster: &Cluster, server: usize) {
    for shard in ["shard_b", "shard_c"] {
        fails(cluster, ("countries", shard), TAKEN_OUT);
    }
    some_turns();
    assert!(
        has(cluster, server, "countries", "written since"),
        "{:?}",
        contents(cluster, server, "countries")
    );
}

/// The operator says that the third shard is the origin, by the calls that the hints name.
fn said(cluster: &Cluster) {
    master(cluster, DROP);
    forgotten(cluster);
    for shard in SHARDS {
        assert!(!cleaned(cluster, shard).contains("kept"));
    }
    add(cluster, "countries", "shard_c");
    master(cluster, WAIT);
    run(cluster, 2, "INSERT INTO countries VALUES ('behind it') ON CONFLICT DO NOTHING");
    alike(cluster, &["countries", "plans", "prices"]);
    for server in 0..3 {
        assert!(has(cluster, server, "countries", "written since"));
    }
}

fn moved_to_c(cluster: &Cluster) {
    master(cluster, DROP);
    forgotten(cluster);
    add(cluster, "countries", "shard_c");
    master(cluster, WAIT);
}

#[test]
#[ignore = "make test-all: another origin since; make test has a_shard_that_knows_nothing_any_more_keeps_its_rows"]
fn the_origin_that_shards_know_is_not_written_to() {
    let mut cluster = zoo(3);
    run(&cluster, 0, "INSERT INTO countries VALUES ('de'), ('fr')");
    alike(&cluster, &["countries", "plans", "prices"]);
    let dump = Dump::of(&cluster, "before").unwrap();
    cluster.master.copy_disk().unwrap();
    let disk = Disk::of(&cluster).unwrap();
    moved_to_c(&cluster);
    cluster.master.stop(Stop::Fast).unwrap();
    run(&cluster, 2, "INSERT INTO countries VALUES ('written since')");
    disk.restore(&mut cluster).unwrap();
    keeps_what_was_written_at(&cluster, 2);
    // Nothing of it is removed while the restored master has another origin.
    assert!(cleaned(&cluster, "shard_c").contains("kept: "));
    some_turns();
    assert!(has(&cluster, 2, "countries", "written since"));
    said(&cluster);
    // The tables are removed from the keyspace, and each shard has rows of its own.
    master(&cluster, DROP);
    forgotten(&cluster);
    for server in 0..3 {
        run(&cluster, server, &format!("INSERT INTO countries VALUES ('own {server}')"));
    }
    cluster.master.set_disk_back(Stop::Fast).unwrap();
    cluster.master.run().unwrap();
    keeps_what_was_written_at(&cluster, 2);
    assert!(has(&cluster, 1, "countries", "own 1") && !has(&cluster, 1, "countries", "own 0"));
    said(&cluster);
    assert!(!has(&cluster, 1, "countries", "own 1") && has(&cluster, 1, "countries", "own 2"));
    // This is the same with a dump, from before that.
    run(&cluster, 2, "DELETE FROM countries WHERE code = 'written since'");
    dump.restore(&cluster).unwrap();
    run(&cluster, 2, "INSERT INTO countries VALUES ('written since')");
    master(&cluster, "SELECT * FROM shard_adopt()");
    keeps_what_was_written_at(&cluster, 2);
    said(&cluster);
    assert!(states(&cluster).contains("countries shard_c shard_a following"));
}

/// A restored master assigns numbers of tables and sets again.
#[test]
#[ignore = "make test-all: numbers of tables; make test has a_shard_that_knows_nothing_any_more_keeps_its_rows"]
fn a_number_is_not_taken_for_what_had_it() {
    let mut cluster = zoo(3);
    for server in 0..3 {
        let more = "CREATE TABLE extra (code text PRIMARY KEY); CREATE TABLE others (code text PRIMARY KEY)";
        run(&cluster, server, more);
    }
    add(&cluster, "extra", "shard_a");
    run(&cluster, 0, "INSERT INTO others VALUES ('of all'); INSERT INTO extra VALUES ('old')");
    alike(&cluster, &["countries", "plans", "prices", "extra"]);
    let disk = Disk::of(&cluster).unwrap();
    master(&cluster, "SELECT shard_table_drop('extra'), shard_table_drop('countries')");
    forgotten(&cluster);
    for table in ["countries", "others"] {
        add(&cluster, table, "shard_a");
    }
    let numbers = "SELECT string_agg(table_name, ' ' ORDER BY ordinal) FROM shardmaster.reference_table WHERE set_id = 1";
    assert_eq!(all(&mut cluster.superuser().unwrap(), numbers), "plans prices countries others");
    master(&cluster, "SELECT shard_table_drop('countries')");
    forgotten(&cluster);
    add(&cluster, "countries", "shard_c");
    alike(&cluster, &["others", "countries"]);
    run(&cluster, 1, "INSERT INTO extra VALUES ('own')");
    run(&cluster, 2, "INSERT INTO countries VALUES ('written since')");
    disk.restore(&mut cluster).unwrap();
    for table in ["extra", "countries"] {
        fails(&cluster, (table, "shard_b"), TAKEN_OUT);
    }
    // The operator names another origin than the shards know. A dump assigns the same number again.
    let known = "SELECT max(set_id)::text FROM shardmaster_agent.reference_origin";
    let known = all(&mut cluster.servers[2].superuser(DATABASE).unwrap(), known);
    master(&cluster, &format!("SELECT setval('shardmaster.reference_set_id_seq', {known} - 1)"));
    master(&cluster, DROP);
    master(&cluster, "SELECT shard_table_drop('extra')");
    forgotten(&cluster);
    add(&cluster, "countries", "shard_b");
    for shard in ["shard_a", "shard_c"] {
        fails(&cluster, ("countries", shard), ["of a master that was lost", "shard_cleanup"]);
    }
    assert!(cleaned(&cluster, "shard_c").contains("kept: "));
    some_turns();
    assert!(has(&cluster, 2, "countries", "written since") && has(&cluster, 1, "extra", "own"));
    // This is called at once, when the worker may not know it yet.
    master(&cluster, DROP);
    for shard in SHARDS {
        let said = cleaned(&cluster, shard);
        assert!(said == "removed" || said.contains("shard_status()"), "{said}");
    }
    some_turns();
    assert!(has(&cluster, 2, "countries", "written since"));
    forgotten(&cluster);
    for shard in SHARDS {
        assert!(!cleaned(&cluster, shard).contains("kept: "));
    }
    add(&cluster, "countries", "shard_c");
    add(&cluster, "extra", "shard_b");
    add(&cluster, "others", "shard_a");
    alike(&cluster, &["countries", "extra", "plans", "others"]);
    assert!(has(&cluster, 0, "countries", "written since") && has(&cluster, 2, "extra", "own"));
}

/// A shard that was dropped since has nothing left by which it would know that it was a copy, and has rows of
/// its own.
#[test]
fn a_shard_that_knows_nothing_any_more_keeps_its_rows() {
    let mut cluster = zoo(3);
    run(&cluster, 0, "INSERT INTO countries VALUES ('de')");
    alike(&cluster, &["countries", "plans", "prices"]);
    let disk = Disk::of(&cluster).unwrap();
    master(&cluster, "SELECT shard_drop('shard_c')");
    by_superuser(&cluster, 2, "DROP SCHEMA shardmaster_agent CASCADE");
    run(&cluster, 2, "INSERT INTO countries VALUES ('its own')");
    disk.restore(&mut cluster).unwrap();
    fails(&cluster, ("countries", "shard_c"), ["no longer knows", "TRUNCATE"]);
    // No key has moved. Numbers of reservations that this master has lost are not assigned again either.
    let mut session = cluster.superuser().unwrap();
    assert_eq!(all(&mut session, "SELECT action FROM shard_adopt()"), "");
    let next = "SELECT nextval('shardmaster.shard_reservation_id_seq')::text";
    assert!(all(&mut session, next).parse::<i64>().unwrap() > 1_000_000);
    run(&cluster, 0, "INSERT INTO countries VALUES ('fr')");
    wait::until("the other to follow", LIMIT, || Ok(has(&cluster, 1, "countries", "fr").then_some(())))
        .unwrap();
    assert!(has(&cluster, 2, "countries", "its own") && !has(&cluster, 2, "countries", "fr"));
    run(&cluster, 2, "TRUNCATE countries, plans, prices");
    alike(&cluster, &["countries", "plans", "prices"]);
}

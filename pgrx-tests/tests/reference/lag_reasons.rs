//! Reasons for which a shard does not follow, with their remedies, and problems that affect one shard alone.

use super::replication::{ALL, WAIT, alike, all, contents, master, states, zoo};
use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{LIMIT, by_owner as run, by_superuser, outcome};
use shardmaster_tests::wait;
use std::time::Duration;

/// Waits until a shard's state, error and hint contain all of these words.
fn says(cluster: &Cluster, shard: &str, words: &[&str]) {
    let query = format!(
        "SELECT concat_ws(' ', state, error, hint) FROM shard_reference_tables() WHERE shard = '{shard}' LIMIT 1"
    );
    wait::until(&words.join(", "), LIMIT, || {
        let text = all(&mut *cluster.kept()?, &query);
        Ok(words.iter().all(|word| text.contains(word)).then_some(()))
    })
    .unwrap();
}

fn follows_again(cluster: &Cluster, tables: &[&str]) {
    wait::until("it to follow again", LIMIT, || Ok((!states(cluster).contains("failed")).then_some(())))
        .unwrap();
    alike(cluster, tables);
}

#[test]
fn rows_that_do_not_fit_are_told_with_what_helps() {
    let cluster = zoo(2);
    alike(&cluster, &ALL);
    run(&cluster, 1, "ALTER TABLE plans ADD CONSTRAINT low CHECK (amount < 100)");
    run(&cluster, 0, "UPDATE plans SET amount = 500 WHERE id = 3");
    says(&cluster, "shard_b", &["failed", "\"low\"", "shard_schema_diff('shard_a', 'shard_b')"]);
    run(&cluster, 1, "ALTER TABLE plans DROP CONSTRAINT low");
    follows_again(&cluster, &ALL);
    // Generated values must be the same on each side.
    let add = |by: i32| format!("ALTER TABLE plans ADD more int GENERATED ALWAYS AS (id * {by}) STORED");
    run(&cluster, 0, &add(3));
    run(&cluster, 1, &add(4));
    says(&cluster, "shard_b", &["failed", "column \"more\" that is different"]);
    run(&cluster, 1, &format!("ALTER TABLE plans DROP more; {}", add(3)));
    follows_again(&cluster, &ALL);
    [0, 1].iter().for_each(|server| run(&cluster, *server, "ALTER TABLE plans ADD scan oid"));
    says(
        &cluster,
        "shard_b",
        &["failed", "of type oid, whose values have a meaning on their own server only"],
    );
    [0, 1].iter().for_each(|server| run(&cluster, *server, "ALTER TABLE plans DROP scan"));
    follows_again(&cluster, &ALL);
}

/// Changes that a subscription applies fire no statement triggers.
#[test]
#[ignore = "make test-all: a subscription; make test has ddl::concurrent::a_target_that_subscribes_to_its_source_is_refused"]
fn a_copy_that_is_subscribed_is_refused() {
    let cluster = zoo(2);
    alike(&cluster, &ALL);
    by_superuser(
        &cluster,
        1,
        "SET allow_system_table_mods = on;
         CREATE SUBSCRIPTION other CONNECTION 'dbname=none' PUBLICATION none WITH (connect = false, slot_name = NONE);
         INSERT INTO pg_subscription_rel SELECT oid, 'countries'::regclass, 'r', NULL FROM pg_subscription",
    );
    says(&cluster, "shard_b", &["failed", "has a subscription"]);
    by_superuser(&cluster, 1, "DROP SUBSCRIPTION other");
    follows_again(&cluster, &ALL);
}

#[test]
fn a_lock_that_is_in_the_way_is_told() {
    let cluster = zoo(2);
    run(&cluster, 0, "INSERT INTO countries VALUES ('de'), ('fr')");
    alike(&cluster, &ALL);
    let mut client = cluster.servers[1].superuser(DATABASE).unwrap();
    client.batch_execute("BEGIN; SELECT FROM countries WHERE code = 'de' FOR UPDATE").unwrap();
    run(&cluster, 0, "DELETE FROM countries WHERE code = 'de'");
    // It answers, so it is not away.
    says(&cluster, "shard_b", &["following", "lock timeout", "pg_stat_activity"]);
    client.batch_execute("COMMIT").unwrap();
    alike(&cluster, &ALL);
}

/// A reader of one shard delays what is to be removed there, and nothing else.
#[test]
#[ignore = "make test-all: a drop; make test has a_lock_that_is_in_the_way_is_told"]
fn what_is_dropped_says_what_it_waits_for() {
    let cluster = zoo(3);
    alike(&cluster, &ALL);
    let mut reader = cluster.servers[1].superuser(DATABASE).unwrap();
    reader.batch_execute("BEGIN; SELECT FROM countries").unwrap();
    master(&cluster, "SELECT shard_table_drop('countries')");
    let status = "SELECT concat_ws(' ', value, ok) FROM shard_status()
                   WHERE item = 'reference table countries, removed from keyspace default'";
    wait::until("it to be told", LIMIT, || {
        let text = all(&mut *cluster.kept()?, status);
        Ok((text.contains("pid") && text.ends_with(" f")).then_some(()))
    })
    .unwrap();
    for round in 1..4 {
        run(&cluster, 0, &format!("UPDATE plans SET amount = {round}"));
        wait::until("the others to follow", Duration::from_secs(10), || {
            Ok((contents(&cluster, 0, "plans") == contents(&cluster, 2, "plans")).then_some(()))
        })
        .unwrap();
    }
    reader.batch_execute("COMMIT").unwrap();
    wait::until("it to be gone", LIMIT, || Ok(all(&mut *cluster.kept()?, status).is_empty().then_some(())))
        .unwrap();
    run(&cluster, 1, "INSERT INTO countries VALUES ('free')");
}

/// Somebody who removes the queue on the origin stops no writer.
#[test]
#[ignore = "make test-all: a queue that is gone; make test has reference::divergence::what_was_written_past_a_guard_is_set_back"]
fn a_queue_that_is_gone_is_made_again() {
    let cluster = zoo(2);
    alike(&cluster, &ALL);
    for gone in ["TABLE shardmaster_agent.reference_queue_1_1", "SCHEMA shardmaster_agent CASCADE"] {
        by_superuser(&cluster, 0, &format!("SET lock_timeout = '20s'; DROP {gone}"));
        wait::until("a client to write again", Duration::from_secs(40), || {
            let mut session = cluster.servers[0].superuser(DATABASE)?;
            Ok((outcome(&mut session, "INSERT INTO countries VALUES (now()::text)") == "ok").then_some(()))
        })
        .unwrap();
        wait::until("it to be captured", LIMIT, || Ok(cluster.superuser()?.batch_execute(WAIT).ok()))
            .unwrap();
        alike(&cluster, &ALL);
    }
}

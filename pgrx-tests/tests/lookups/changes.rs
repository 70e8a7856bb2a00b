//! Lookup indexes whose tables change, and keys that no column can have.

use shardmaster_tests::fixture::{LIMIT, by_superuser};
use shardmaster_tests::lookups::{add, insert, route, stage, wait_equal, wait_filled, wait_route};
use shardmaster_tests::queries::error;
use shardmaster_tests::wait;

#[test]
fn a_column_that_replaces_another_one_is_captured() {
    let cluster = stage(&[]);
    by_superuser(&cluster, 0, &insert(1, 3, "a"));
    let mut master = add(&cluster);
    wait_equal(&cluster, &mut master);
    by_superuser(&cluster, 0, "ALTER TABLE users RENAME email TO former; ALTER TABLE users ADD email text");
    by_superuser(&cluster, 0, "UPDATE users SET email = 'new' || id || '@x.org'");
    wait_route(&mut master, "new3@x.org", "shard_a");
    wait_filled(&mut master);
    by_superuser(&cluster, 0, "INSERT INTO users (tenant, id, email) VALUES ('a', 4, 'later@x.org')");
    wait_route(&mut master, "later@x.org", "shard_a");
    wait_equal(&cluster, &mut master);
}

#[test]
fn a_table_that_was_away_is_looked_through_again() {
    let cluster = stage(&[]);
    by_superuser(&cluster, 0, &insert(1, 3, "a"));
    let mut master = add(&cluster);
    wait_equal(&cluster, &mut master);
    by_superuser(&cluster, 0, "ALTER TABLE users RENAME TO away");
    // A row is on the wrong shard, so the shard without the table is asked.
    by_superuser(&cluster, 1, "INSERT INTO users VALUES ('a', 1, 'a1@x.org')");
    wait::until("it is gone", LIMIT, || Ok((route(&mut master, "a1@x.org") != "shard_a").then_some(())))
        .unwrap();
    assert_eq!(route(&mut master, "a1@x.org"), "55000");
    by_superuser(&cluster, 0, "ALTER TABLE away RENAME TO users");
    wait_route(&mut master, "a1@x.org", "shard_a");
    wait_equal(&cluster, &mut master);
}

#[test]
fn a_key_that_no_row_can_have_keeps_nothing_waiting() {
    let cluster = stage(&[]);
    by_superuser(&cluster, 0, &insert(1, 3, "a"));
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_keyspace_add('ids', 'lookup', key_type => 'bigint', of => 'default');
             SELECT shard_table_add('users', 'id', 'ids')",
        )
        .unwrap();
    let filled =
        "SELECT count(*) = 2 AND bool_and(state = 'filled') FROM shard_lookups() WHERE keyspace = 'ids'";
    wait::until_true(&mut master, "filled", LIMIT, filled).unwrap();
    let claim = |lease: &str| format!("SELECT shard_lookup_claim('3000000000', 'a', 'ids', '{lease}')");
    assert_eq!(error(&mut master, &claim("2 days")).0, "22023");
    master.batch_execute(&claim("1 hour")).unwrap();
    by_superuser(&cluster, 0, "TRUNCATE users");
    by_superuser(&cluster, 0, "INSERT INTO users VALUES ('a', 77, 'x')");
    let swept = "SELECT array_agg(key ORDER BY key) = '{3000000000,77}' FROM shardmaster.lookup_entry WHERE lookup = 'ids'";
    wait::until_true(&mut master, "swept", LIMIT, swept).unwrap();
    wait::until_true(&mut master, "filled again", LIMIT, filled).unwrap();
}

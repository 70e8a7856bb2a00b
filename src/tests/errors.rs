//! Errors as a caller receives them: SQLSTATE, DETAIL for programs, HINT for people.

#[pgrx::pg_schema]
mod tests {
    use super::super::{expect, refused, run, shards, text};
    use crate::catalog::keyspace;
    use crate::routing::change;
    use pgrx::prelude::*;

    #[pg_test]
    fn a_key_between_two_shards_is_sm002_with_a_detail_for_programs() {
        shards("text");
        run("SELECT shard_assign('x', 'a')");
        assert!(change::set_moving(keyspace::DEFAULT, &["x".to_owned()], "b").is_ok());
        run("SET LOCAL shardmaster.route_wait_timeout = 0");
        let refusal = refused("SELECT shard_of('x')");
        assert_eq!(refusal.state, "SM002");
        assert_eq!(refusal.message, "key \"x\" is being moved between two shards");
        let detail: serde_json::Value = serde_json::from_str(&refusal.detail).unwrap_or_default();
        assert_eq!(detail, serde_json::json!({"key": "x", "keyspace": "default", "routing_version": 1}));
        assert_eq!(refusal.hint, "A split is moving the key. Retry after a moment.");
        assert_eq!(text("SELECT shard_of('x', 'read')"), "a");
    }

    #[pg_test]
    fn full_shards_are_sm003_and_named() {
        run("SELECT shard_add('g', kind => 'gpu', capacity => 0)");
        let refusal = refused("SELECT shard_reserve_slot('gpu', 'k', 'acme')");
        assert_eq!(refusal.state, "SM003");
        assert!(refusal.detail.contains("\"g\""), "{refusal:?}");
        assert!(!refusal.hint.is_empty());
    }

    #[pg_test]
    fn a_used_up_quota_is_sm004() {
        run("SELECT shard_add('g', kind => 'gpu', capacity => 5), shard_set_quota('acme', 'gpu', 0)");
        assert_eq!(refused("SELECT shard_reserve_slot('gpu', 'k', 'acme')").state, "SM004");
    }

    #[pg_test]
    fn a_reservation_that_has_ended_is_sm005() {
        run("SELECT shard_add('g', kind => 'gpu', capacity => 5)");
        run("SELECT shard_cancel_slot(reservation_id) FROM shard_reserve_slot('gpu', 'k', 'acme')");
        let confirm = "SELECT shard_confirm_slot(id, 'r') FROM shardmaster.shard_reservation";
        assert_eq!(refused(confirm).state, "SM005");
    }

    /// The record of a follower tells when it was like its origin, but only for the tables that it knew then.
    #[pg_test]
    fn a_wait_for_reference_tables_knows_one_that_has_just_come() {
        shards("text");
        let add = |table: &str| {
            run(&format!(
                "SELECT shard_table_add('{table}', policy => 'reference', origin => 'a', shard_by => NULL)"
            ))
        };
        add("old");
        run("INSERT INTO shardmaster.reference_copy (set_id, shard_key, state, filled, as_of)
             SELECT id, 'b', 'following', '{1}', 'infinity' FROM shardmaster.reference_set");
        run("SELECT shard_reference_wait(timeout => '0 s')");
        add("new");
        let refusal = refused("SELECT shard_reference_wait(timeout => '0 s')");
        assert_eq!(
            (refusal.state.as_str(), refusal.message.contains("\"b\" has not caught up")),
            ("57014", true),
            "{refusal:?}"
        );
    }

    #[pg_test]
    fn a_missing_argument_is_named() {
        expect("SELECT shard_of(NULL)", "22004", "argument \"key\" must not be NULL");
        expect("SELECT shard_split_wait(NULL, 'x')", "22004", "argument \"split_id\" must not be NULL");
        expect("SELECT shard_assign('x', NULL)", "22004", "argument \"shard_key\" must not be NULL");
    }

    /// A message is not a format string, neither with this extension's own codes nor with those of pgrx.
    #[pg_test]
    fn what_a_user_wrote_is_shown_as_it_is() {
        shards("text");
        expect(
            "SELECT shard_of('%s%n %')",
            "42704",
            "key \"%s%n %\" is not assigned in keyspace \"default\"",
        );
        run("SELECT shard_assign('%s%n', 'a')");
        assert!(change::set_moving(keyspace::DEFAULT, &["%s%n".to_owned()], "b").is_ok());
        run("SET LOCAL shardmaster.route_wait_timeout = 0");
        expect("SELECT shard_of('%s%n')", "SM002", "key \"%s%n\" is being moved between two shards");
    }

    /// Such a capacity would overflow, so that every reservation of its kind would fail.
    #[pg_test]
    fn a_capacity_beyond_all_numbers_is_refused() {
        let problem = "invalid value for \"capacity\": it is too large; NULL stands for no limit";
        expect("SELECT shard_add('v', kind => 'vector', capacity => 9223372036854775807)", "22023", problem);
        run("SELECT shard_add('v', kind => 'vector', capacity => 10)");
        expect("SELECT shard_set_capacity('v', 4611686018427387905)", "22023", problem);
        for strategy in ["fill_first", "spread", "consistent"] {
            run("SELECT shard_set_capacity('v', 4611686018427387904)");
            let reserve = format!(
                "SELECT shard_key FROM shard_reserve_slot('vector', '{strategy}', 't', strategy => '{strategy}')"
            );
            assert_eq!(text(&reserve), "v");
            run("SELECT shard_set_capacity('v', 0), shard_set_capacity('v', NULL)");
        }
    }

    #[pg_test]
    fn a_keyspace_of_another_strategy_says_which_calls_it_takes() {
        run("SELECT shard_add('a', namespace => 'a')");
        run("SELECT shard_keyspace_add('h', 'hash', buckets => 4, shards => '{a}')");
        let refusal = refused("SELECT shard_assign('x', 'a', 'h')");
        assert_eq!(refusal.state, "22023");
        assert_eq!(refusal.message, "keyspace \"h\" is of strategy \"hash\"");
        assert!(refusal.hint.contains("shard_assign_bucket()"));
        expect(
            "SELECT shard_assign_bucket(4, 'a', 'h')",
            "22023",
            "bucket 4 of keyspace \"h\" does not exist",
        );
    }
}

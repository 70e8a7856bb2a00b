//! The session's cache of routes: the next call sees every change of routing.

#[pgrx::pg_schema]
mod tests {
    use super::super::{refusal, refused, run, shards, text};
    use pgrx::prelude::*;

    fn route() -> String {
        text("SELECT shard_of('x') || shard_of('x', 'read') || shard_of('x')")
    }

    fn cached() {
        shards("text");
        run("SELECT shard_assign('x', 'a')");
        assert_eq!(route(), "aaa");
    }

    #[pg_test]
    fn a_change_of_routing_is_seen_at_once() {
        cached();
        run("SELECT shard_assign('x', 'b', force => true)");
        assert_eq!(route(), "bbb");
        run("SELECT shard_unassign('x')");
        assert_eq!(refusal("SELECT shard_of('x')").0, "42704");
    }

    #[pg_test]
    fn what_was_seen_in_a_change_that_is_undone_is_forgotten() {
        cached();
        let change = "DO $$ DECLARE seen text; BEGIN
                          PERFORM shard_assign('x', 'b', force => true);
                          seen := shard_of('x');
                          RAISE 'seen: %', seen;
                      END $$";
        assert_eq!(refused(change).message, "seen: b");
        assert_eq!(route(), "aaa");
    }

    #[pg_test]
    fn a_shard_that_is_disabled_is_refused_though_it_was_cached() {
        cached();
        run("SELECT shard_set_status('a', 'disabled')");
        assert_eq!(refusal("SELECT shard_of('x')"), ("55000".into(), "shard \"a\" is disabled".into()));
        run("SELECT shard_set_status('a', 'active')");
        assert_eq!(route(), "aaa");
    }

    #[pg_test]
    fn a_new_connection_string_is_handed_out_at_once() {
        cached();
        let conninfo = "SELECT coalesce(conninfo, 'none') FROM shard_route('x')";
        let before = text(conninfo);
        run("UPDATE shardmaster.shard SET client_conninfo = 'host=pool dbname=app' WHERE shard_key = 'a'");
        assert_ne!(before, "host=pool dbname=app");
        assert_eq!(text(conninfo), "host=pool dbname=app");
    }

    /// The result depends neither on the order nor on the number of requests.
    #[pg_test]
    fn where_readers_go_is_not_told_to_writers() {
        shards("text");
        run("SELECT shard_assign_many('{x,y,z}', 'a')");
        run("UPDATE shardmaster.shard SET client_conninfo = 'host=primary', read_conninfo = 'host=standby'");
        let told =
            |key: &str, intent: &str| text(&format!("SELECT conninfo FROM shard_route('{key}', '{intent}')"));
        for _ in 0..3 {
            assert_eq!(told("x", "read"), "host=standby");
            assert_eq!(told("x", "write"), "host=primary");
            assert_eq!(told("y", "write"), "host=primary");
            assert_eq!(told("z", "read"), "host=standby");
        }
    }

    #[pg_test]
    fn a_small_cache_and_none_give_the_same_answers() {
        shards("text");
        run("SELECT shard_assign_many(array_agg(n::text), CASE n % 2 WHEN 0 THEN 'a' ELSE 'b' END)
               FROM generate_series(1, 40) n GROUP BY n % 2");
        let wrong = "SELECT count(*)::text FROM generate_series(1, 40) n, generate_series(1, 3)
                      WHERE shard_of(n::text) <> CASE n % 2 WHEN 0 THEN 'a' ELSE 'b' END";
        for size in [0, 7, 200_000] {
            run(&format!("SET LOCAL shardmaster.route_cache_size = {size}"));
            assert_eq!(text(wrong), "0", "size {size}");
        }
    }

    #[pg_test]
    fn cached_ranges_end_where_they_are_cut() {
        run("SELECT shard_add(n, namespace => n) FROM unnest('{a,b}'::text[]) n");
        run("SELECT shard_keyspace_add('r', 'range', key_type => 'bigint')");
        run("SELECT shard_assign_range('0', '100', 'a', 'r')");
        let at = |key: i64| text(&format!("SELECT shard_of('{key}', keyspace => 'r')"));
        assert_eq!((at(0), at(99)), ("a".into(), "a".into()));
        run("SELECT shard_assign_range('50', '100', 'b', 'r', force => true)");
        assert_eq!((at(49), at(50), at(99)), ("a".into(), "b".into(), "b".into()));
        assert_eq!(refusal("SELECT shard_of('100', keyspace => 'r')").0, "42704");
    }
}

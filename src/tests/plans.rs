//! Plans that are refused before any server is asked.

#[pgrx::pg_schema]
mod tests {
    use super::super::{expect, refused, run, shards, text};
    use pgrx::prelude::*;

    /// Routes keys x and y to a, and z to b.
    fn routed() {
        shards("text");
        run("SELECT shard_assign_many('{x,y}', 'a'), shard_assign('z', 'b')");
    }

    fn planned() -> String {
        routed();
        text("SELECT shard_split_plan('a', 'b', '{x}')::text")
    }

    #[pg_test]
    fn what_can_not_move_is_refused_by_name() {
        routed();
        for (call, state, message) in [
            ("plan('a', 'b', '{}')", "22023", "the list of tenants is empty"),
            ("plan('a', 'a', '{x}')", "22023", "source and target are the same shard \"a\""),
            ("plan('a', 'b', '{x,z,w}')", "22023", "not routed to source shard \"a\": \"w\", \"z\""),
            ("plan('a', 'b', '{x,x}')", "22023", "keys are given more than once: \"x\""),
            ("plan('a', 'b', '{NULL}')", "22004", "keys must not be NULL"),
            ("plan_all('b', 'a', keyspace => 'none')", "42704", "keyspace \"none\" does not exist"),
        ] {
            expect(&format!("SELECT shard_split_{call}"), state, message);
        }
        assert_eq!(text("SELECT count(*)::text FROM shard_split_metrics()"), "0");
    }

    #[pg_test]
    fn a_key_is_in_one_plan_at_a_time() {
        let id = planned();
        let message = format!("key \"x\" is already being moved by split {id}");
        expect("SELECT shard_split_plan('a', 'b', '{y,x}')", "55006", &message);
        let refusal = refused("SELECT shard_assign('x', 'b', force => true)");
        assert_eq!(
            (refusal.state.as_str(), refusal.message),
            ("55006", format!("key \"x\" is in use by split {id}"))
        );
        // A key in use is also found among many keys, for which no list is read if no split holds any.
        let many = "SELECT shard_assign_many(array_agg('key ' || i) || ARRAY['x'], 'b', force => true) FROM generate_series(1, 2000) i";
        expect(many, "55006", &format!("key \"x\" is in use by split {id}"));
        run("SELECT shard_split_plan('a', 'b', '{y}')");
        run(&format!("SELECT shard_split_rollback({id})"));
        run(&many.replace("|| ARRAY['x']", ""));
    }

    #[pg_test]
    fn shards_that_take_nothing_are_no_target() {
        routed();
        for status in ["draining", "disabled"] {
            run(&format!("SELECT shard_set_status('b', '{status}')"));
            let message = format!("target shard \"b\" is {status}");
            expect("SELECT shard_split_plan('a', 'b', '{x}')", "55000", &message);
        }
        run("SELECT shard_add('v', kind => 'vector')");
        let message = "shard \"v\" is of kind \"vector\" and holds no rows";
        expect("SELECT shard_split_plan('a', 'v', '{x}')", "22023", message);
    }

    #[pg_test]
    fn a_keyspace_without_tables_has_nothing_to_split() {
        run("SELECT shard_add(n, namespace => n) FROM unnest('{a,b}'::text[]) n");
        run("SELECT shard_assign('x', 'a')");
        expect("SELECT shard_split_plan('a', 'b', '{x}')", "55000", "keyspace \"default\" has no tables");
    }

    #[pg_test]
    fn a_call_before_its_time_is_refused_and_changes_nothing() {
        let id = planned();
        for call in ["run_backfill", "cutover", "finish"] {
            let refusal = refused(&format!("SELECT shard_split_{call}({id})"));
            assert_eq!(refusal.state, "55000", "{call}");
            assert!(!refusal.hint.is_empty(), "{call}");
        }
        assert_eq!(text(&format!("SELECT phase FROM shard_split_metrics({id})")), "planning");
        expect("SELECT shard_split_cutover(4711)", "42704", "split 4711 does not exist");
    }

    #[pg_test]
    fn expressions_are_for_the_tables_of_the_plan() {
        let id = planned();
        let message = format!("table \"other\" is not a table of split {id}");
        expect(&format!("SELECT shard_split_map({id}, 'other', 'c', 'upper(c)')"), "42704", &message);
        run(&format!("SELECT shard_split_map({id}, 'items', 'c', 'upper(c)')"));
        run(&format!("SELECT shard_split_map({id}, 'items', 'c', NULL)"));
        let maps = "SELECT string_agg(column_name || coalesce(expression, ' left out'), ',') FROM shardmaster.split_map";
        assert_eq!(text(maps), "c left out");
    }
}

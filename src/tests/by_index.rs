//! Entries of routing, read directly through their index: the results must be those of a statement.

#[pgrx::pg_schema]
mod tests {
    use super::super::{refused, run, text};
    use crate::catalog::current_entry::{self, CurrentEntry};
    use crate::server::index_scan::Unusable;
    use pgrx::prelude::*;

    fn find(key: &str) -> Option<CurrentEntry> {
        match current_entry::find("default", key) {
            Ok(found) => found,
            Err(Unusable) => panic!("the index is not used"),
        }
    }

    fn shard(key: &str) -> Option<String> {
        find(key).map(|entry| entry.write_shard)
    }

    fn on(key: &str, is_on: &str) {
        assert_eq!(shard(key).as_deref(), Some(is_on), "{key}");
    }

    /// Routes keys x and y to a.
    fn routed() {
        run("SELECT shard_add(n, namespace => n) FROM unnest('{a,b}'::text[]) n");
        run("SELECT shard_assign_many('{x,y}', 'a')");
        on("x", "a");
    }

    fn is_unusable() -> bool {
        current_entry::find("default", "x") == Err(Unusable)
    }

    #[pg_test]
    fn an_index_shows_what_this_transaction_has_done_so_far() {
        routed();
        assert_eq!(shard("z"), None);
        run("DELETE FROM shardmaster.routing_entry WHERE key = 'y'");
        assert_eq!(shard("y"), None);
        run("SELECT shard_assign('x', 'b', force => true)");
        on("x", "b");
        run("SELECT shard_unassign('x')");
        assert_eq!(shard("x"), None);
    }

    /// The changed column is in no index, so the row stays where the index has it.
    #[pg_test]
    fn an_index_shows_rows_that_have_changed_in_place() {
        routed();
        for shard_key in ["b", "a", "b"] {
            run(&format!("UPDATE shardmaster.routing_entry SET write_shard = '{shard_key}' WHERE key = 'x'"));
            on("x", shard_key);
        }
        let entry = find("x");
        let entry = entry.as_ref().map(|e| (e.read_shard.as_str(), e.reads_from.as_deref(), e.is_disabled));
        assert_eq!(entry, Some(("a", None, false)));
        run("UPDATE shardmaster.routing_entry SET reads_from = 'b', status = 'disabled' WHERE key = 'x'");
        let entry = find("x");
        let entry = entry.as_ref().map(|e| (e.read_shard.as_str(), e.reads_from.as_deref(), e.is_disabled));
        assert_eq!(entry, Some(("a", Some("b"), true)));
    }

    #[pg_test]
    fn an_index_does_not_show_what_was_undone() {
        routed();
        refused(
            "DO $$ BEGIN PERFORM shard_assign('x', 'b', force => true); PERFORM shard_assign('z', 'b'); RAISE 'no'; END $$",
        );
        on("x", "a");
        assert_eq!(shard("z"), None);
        run("SELECT shard_assign('z', 'b')");
        on("z", "b");
    }

    #[pg_test]
    fn an_index_that_is_made_anew_is_found() {
        routed();
        for command in [
            "REINDEX INDEX shardmaster.routing_entry_current_key",
            "REINDEX TABLE shardmaster.routing_entry",
            "ALTER TABLE shardmaster.routing_entry ADD COLUMN note text DEFAULT 'new'",
            "ALTER TABLE shardmaster.routing_entry DROP COLUMN note",
            "CREATE INDEX other ON shardmaster.routing_entry (key)",
            "ALTER TABLE shardmaster.routing_entry ALTER COLUMN bucket TYPE bigint",
        ] {
            run(command);
            on("x", "a");
            assert_eq!(shard("z"), None);
        }
    }

    /// The lookup uses a statement then.
    #[pg_test]
    fn another_index_of_the_name_is_not_used() {
        routed();
        let current = "CREATE UNIQUE INDEX routing_entry_current_key ON shardmaster.routing_entry (key, keyspace) WHERE valid_to IS NULL";
        for other in [
            "",
            "CREATE UNIQUE INDEX routing_entry_current_key ON shardmaster.routing_entry (keyspace, key) WHERE valid_to IS NULL",
            "CREATE INDEX routing_entry_current_key ON shardmaster.routing_entry (key, keyspace) WHERE valid_to IS NULL",
            "CREATE UNIQUE INDEX routing_entry_current_key ON shardmaster.routing_entry (key, keyspace) WHERE valid_to IS NOT NULL",
            "CREATE UNIQUE INDEX routing_entry_current_key ON shardmaster.routing_entry (key, keyspace) WHERE valid_to IS NULL AND key > 'x'",
            "CREATE UNIQUE INDEX routing_entry_current_key ON shardmaster.routing_entry (key, keyspace) WHERE bucket IS NULL",
            "CREATE UNIQUE INDEX routing_entry_current_key ON shardmaster.routing_entry (key text_pattern_ops, keyspace) WHERE valid_to IS NULL",
            "CREATE INDEX routing_entry_current_key ON shardmaster.routing_entry USING hash (key)",
            "CREATE UNIQUE INDEX routing_entry_current_key ON shardmaster.shard (shard_key, kind)",
            "CREATE TABLE shardmaster.routing_entry_current_key ()",
        ] {
            run("DROP INDEX IF EXISTS shardmaster.routing_entry_current_key");
            run(other);
            assert!(is_unusable(), "{other}");
            assert_eq!(text("SELECT shard_of('x')"), "a");
            if other.starts_with("CREATE TABLE") {
                run("DROP TABLE shardmaster.routing_entry_current_key");
            }
        }
        run(current);
        on("x", "a");
    }

    #[pg_test]
    fn a_table_that_hides_rows_or_has_others_is_not_read_by_its_index() {
        routed();
        for (made, undone) in [
            (
                "ALTER TABLE shardmaster.routing_entry ENABLE ROW LEVEL SECURITY",
                "ALTER TABLE shardmaster.routing_entry DISABLE ROW LEVEL SECURITY",
            ),
            (
                "ALTER TABLE shardmaster.routing_entry RENAME TO elsewhere",
                "ALTER TABLE shardmaster.elsewhere RENAME TO routing_entry",
            ),
            (
                "ALTER INDEX shardmaster.routing_entry_current_key RENAME TO elsewhere",
                "ALTER INDEX shardmaster.elsewhere RENAME TO routing_entry_current_key",
            ),
            ("CREATE TABLE child () INHERITS (shardmaster.routing_entry)", "DROP TABLE child"),
        ] {
            run(made);
            assert!(is_unusable(), "{made}");
            run(undone);
            // The server only notices at the next ANALYZE that a table has no children any more.
            assert!(!is_unusable() || made.contains("INHERITS"), "{undone}");
        }
    }

    #[pg_test]
    fn keys_of_any_length_and_of_any_letters_are_found_by_an_index() {
        routed();
        let long = "k".repeat(1 << 20);
        for key in ["", "X", "x ", "ä", "a\u{308}", "\u{10ffff}", "'; --", &long] {
            assert_eq!(shard(key), None, "{}", key.len());
        }
        for key in ["X", "x ", "ä", "a\u{308}", "\u{10ffff}", "'; --", &"k".repeat(1 << 11)] {
            assert!(
                Spi::run_with_args("SELECT shard_assign($1, 'b')", &[key.into()]).is_ok(),
                "{}",
                key.len()
            );
            on(key, "b");
        }
        on("x", "a");
        assert_eq!(current_entry::find("other", "x"), Ok(None));
    }
}

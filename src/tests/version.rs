//! A library whose version differs from that of the SQL.

#[pgrx::pg_schema]
mod tests {
    use super::super::{run, text};
    use pgrx::prelude::*;

    const STATUS: &str = "SELECT ok || ': ' || value FROM shard_status() WHERE item = 'version'";

    #[pg_test]
    fn the_status_says_when_library_and_extension_differ() {
        let library = env!("CARGO_PKG_VERSION");
        assert_eq!(text(STATUS), format!("true: {library}"));
        run("UPDATE pg_extension SET extversion = '0.0.1' WHERE extname = 'shardmaster'");
        let said = text(STATUS);
        assert!(said.starts_with(&format!("false: extension 0.0.1, library {library}: ")), "{said}");
        assert!(said.contains("ALTER EXTENSION shardmaster UPDATE"), "{said}");
    }
}

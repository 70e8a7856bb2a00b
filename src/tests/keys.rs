//! The canonical form of a key, and texts that are not keys.

#[pgrx::pg_schema]
mod tests {
    use super::super::{expect, refusal, refused, run, shards, text};
    use crate::keys::ordered::Ordered;
    use crate::server::sql;
    use pgrx::prelude::*;

    /// Returns the form in which a key of this type is stored.
    fn kept(key_type: &str, key: &str) -> String {
        shards(key_type);
        sql::read_one("SELECT shard_assign($1, 'a')::text", &[key.into()], |row| row.value::<String>(1));
        text("SELECT key FROM shard_entries()")
    }

    #[pg_test]
    fn numbers_are_kept_without_sign_zeros_and_blanks() {
        assert_eq!(kept("bigint", " +007 "), "7");
        assert_eq!(text("SELECT shard_of('0007') || shard_of('7')"), "aa");
    }

    #[pg_test]
    fn numerics_are_kept_without_trailing_zeros() {
        assert_eq!(kept("numeric", "1.50"), "1.5");
        assert_eq!(text("SELECT shard_of('1.5000') || shard_of('15e-1')"), "aa");
    }

    #[pg_test]
    fn uuids_are_kept_in_small_letters() {
        let id = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        assert_eq!(kept("uuid", "{A0EEBC99-9C0B4EF8-BB6D6BB9-BD380A11}"), id);
    }

    #[pg_test]
    fn padded_keys_are_kept_without_the_padding() {
        assert_eq!(kept("character", "ab  "), "ab");
        assert_eq!(text("SELECT shard_of('ab') || shard_of('ab     ')"), "aa");
    }

    #[pg_test]
    fn texts_are_kept_as_they_are() {
        assert_eq!(kept("text", " 007 "), " 007 ");
        assert_eq!(refusal("SELECT shard_of('007')").0, "42704");
    }

    #[pg_test]
    fn what_is_no_value_of_the_type_is_refused_as_the_server_does() {
        shards("integer");
        for call in ["shard_assign('seven', 'a')", "shard_of('')", "shard_unassign('1.5')"] {
            assert_eq!(refusal(&format!("SELECT {call}")).0, "22P02", "{call}");
        }
        expect(
            "SELECT shard_of('3000000000')",
            "22003",
            "value \"3000000000\" is out of range for type integer",
        );
    }

    #[pg_test]
    fn a_domain_counts_as_its_base_type() {
        run("CREATE DOMAIN pg_temp.id AS smallint CHECK (VALUE > 0)");
        assert_eq!(kept("pg_temp.id", "012"), "12");
    }

    #[pg_test]
    fn types_of_which_a_value_has_several_texts_are_refused() {
        for name in ["date", "timestamp with time zone", "double precision", "bytea", "money", "interval"] {
            let add = format!("SELECT shard_keyspace_add('k', 'directory', key_type => '{name}')");
            let refusal = refused(&add);
            assert_eq!(refusal.state, "22023");
            assert_eq!(refusal.message, format!("type {name} cannot be the type of a key"));
            assert!(!refusal.detail.is_empty() && !refusal.hint.is_empty());
        }
    }

    /// A canonical key is used unchanged, without a call of the input function.
    #[pg_test]
    fn canonical_is_what_the_server_writes() {
        let written = |key: &str, as_type: &str| {
            let query = format!("SELECT $1::{as_type}::text");
            sql::read_one(&query, &[key.into()], |row| row.value::<String>(1)).unwrap_or_default()
        };
        for key in ["0", "-0", "7", "-7", "07", "+7", " 7", "9223372036854775807", "-9223372036854775808"] {
            assert_eq!(Ordered::BigInt.is_canonical(key), written(key, "bigint") == key, "{key}");
        }
        for key in ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"] {
            assert_eq!(Ordered::Uuid.is_canonical(key), written(key, "uuid") == key, "{key}");
        }
        assert!(!Ordered::BigInt.is_canonical("9223372036854775808"));
        assert!(!Ordered::BigInt.is_canonical("-") && !Ordered::BigInt.is_canonical(""));
    }

    #[pg_test]
    fn a_key_given_twice_in_two_forms_is_refused() {
        shards("integer");
        let refusal = refused("SELECT shard_assign_many('{7,007}', 'a')");
        assert_eq!(refusal.state, "22023");
        assert_eq!(refusal.hint, "Name each key once. Keys are compared in their canonical form.");
    }
}

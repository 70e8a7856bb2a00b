//! Sequences that texts draw from without naming them: by the table that they belong to.
//!
//! The argument of pg_get_serial_sequence() is as good as a name. A function that writes to a table and reads back
//! what the table has filled in (RETURNING, lastval()) may put that number into a row that moves, or keep a journal:
//! this is unknown. Such a sequence is raised if possible, which gives no number out twice; otherwise the check names
//! it, and it stops the split only until it is accepted. A function that writes there and reads nothing back draws no
//! number for other tables.

use super::draw::{self, SequenceName};
use super::names::names_in;
use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::remote::Connection;
use crate::remote::quote::text_array;
use std::collections::BTreeSet;

const OF_NAMED: &str = include_str!("../../../sql/sequences/of_named.sql");
const SERIAL_OF: &str = "pg_get_serial_sequence";

/// A sequence, and a table that has its numbers.
pub struct OfTable {
    pub sequence: SequenceName,
    pub schema: String,
    pub table: String,
}

/// Returns the names in a text's calls of pg_get_serial_sequence(); the tables' names are among them.
pub fn asked_for(text: &str) -> BTreeSet<String> {
    let calls = text.split(SERIAL_OF).skip(1);
    calls.filter_map(|rest| rest.split(',').next()).flat_map(names_in).collect()
}

/// Whether a text with some names may have a table's numbers.
pub fn may_draw(has: impl Fn(&str) -> bool) -> bool {
    has(SERIAL_OF) || (has("insert") || has("merge")) && (has("returning") || has("lastval"))
}

/// Returns the sequences of tables with some names.
pub fn find(connection: &mut Connection, schemas: &[String], names: &[String]) -> Result<Vec<OfTable>> {
    let lists = [schemas, names].map(text_array);
    let rows = catalogs::ask(connection, OF_NAMED, &catalogs::given(&lists))?.rows;
    let one = |row: &Vec<Option<String>>| {
        let (sequence, table) = row.split_at_checked(5)?;
        let [schema, table] = table else { return None };
        let sequence = draw::one_named(sequence)?;
        Some(OfTable { sequence, schema: schema.clone()?, table: table.clone()? })
    };
    Ok(rows.iter().filter_map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_named_where_its_sequence_is_asked_for() {
        let names = asked_for(
            r#"x := nextval(pg_get_serial_sequence('app."Odd one"', 'id')); INSERT INTO journal VALUES (pg_get_serial_sequence ( ''b'', 'id'))"#,
        );
        for name in ["app", "Odd one", "b"] {
            assert!(names.contains(name), "{name}: {names:?}");
        }
        assert!(!names.contains("journal") && !names.contains("id"));
    }

    #[test]
    fn what_reads_back_what_it_wrote_may_draw() {
        let may = |text: &str| {
            let words = names_in(text);
            may_draw(|word| words.contains(word))
        };
        assert!(may("INSERT INTO t DEFAULT VALUES RETURNING id") && may("insert into t; select LASTVAL()"));
        assert!(may("nextval(pg_get_serial_sequence($1, 'id'))"));
        assert!(!may("INSERT INTO journal VALUES (1)") && !may("UPDATE t SET a = 1 RETURNING a"));
    }
}

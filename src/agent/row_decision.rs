//! Where it is checked whether a row that a client changes is in a split's scope: in the condition of the triggers, or
//! in the function that captures.

use crate::agent::filter::Filter;
use crate::agent::shape::Column;
use crate::catalog::split::Plan;

/// The greatest size in bytes of the keys in a WHEN clause: it is parsed anew for each statement that touches the
/// table, so a longer list costs more than a look-up.
pub const LITERAL_BYTES: usize = 200;
/// The greatest size in bytes of the filters in the functions of all tables together: each session that writes keeps
/// those of its tables in memory.
const MAX_BYTES: usize = 4 << 20;

/// Whether the capture functions of tables with such a shard-by column check the scope themselves.
pub fn is_judged_within(plan: &Plan, by: &Column) -> bool {
    let is_listed = plan.scope.condition(&["NEW".to_owned(), "OLD".to_owned()], by, LITERAL_BYTES).is_some();
    let bytes = Filter::size(&plan.scope).saturating_mul(plan.tables.len());
    !is_listed && bytes <= MAX_BYTES && same("new_by", "old_by", by).is_some()
}

/// Returns an SQL condition: two values are the same bytes. Returns None for a type whose bytes cannot be compared
/// safely.
pub fn same(a: &str, b: &str, column: &Column) -> Option<String> {
    match column.base.as_str() {
        "smallint" | "integer" | "bigint" | "uuid" => Some(format!("{a} OPERATOR(pg_catalog.=) {b}")),
        "text" | "character varying" => Some(format!(
            "{a}::pg_catalog.text OPERATOR(pg_catalog.=) {b}::pg_catalog.text COLLATE pg_catalog.\"C\""
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(base: &str, collation: Option<&str>) -> Column {
        Column { base: base.into(), collation: collation.map(str::to_owned), ..Column::default() }
    }

    #[test]
    fn keys_of_types_whose_bytes_are_not_known_are_compared_as_images() {
        assert!(same("a", "b", &column("numeric", None)).is_none());
        assert!(same("a", "b", &column("text", Some("icu_ci"))).is_some_and(|same| same.ends_with("\"C\"")));
    }
}

//! Errors over rows for which shard_split_map() configures how columns are computed. The author of such an expression
//! determines what an error quotes, and need not have the right to read the rows: the column and the SQLSTATE are
//! reported, but no value.

use crate::catalog::split::PlannedTable;
use crate::remote::RemoteError;

/// Errors about rights and the source's results, not about values. Errors about missing names are excluded: a value
/// that is cast to regclass or the like is such a name.
const WITHOUT_VALUES: [&str; 3] = ["42501", "54000", "SM006"];

/// Whether a column of the target is computed.
pub fn is_computed(policy: &PlannedTable, column: &str) -> bool {
    policy.maps.iter().any(|map| map.column == column && map.expression.is_some())
}

/// Whether a column of the target is not the source's: it is computed, or left out for its default.
pub fn is_own(policy: &PlannedTable, column: &str) -> bool {
    policy.maps.iter().any(|map| map.column == column)
}

/// Returns the error without values of rows, if columns of the table are computed.
pub fn without_values(error: RemoteError, table: &str, policy: &PlannedTable) -> RemoteError {
    let columns: Vec<String> = policy
        .maps
        .iter()
        .filter(|map| map.expression.is_some())
        .map(|map| format!("\"{}\"", map.column))
        .collect();
    let state = error.sqlstate.as_ref().map(|state| state.as_str().to_owned());
    let Some(state) = state.filter(|state| !WITHOUT_VALUES.contains(&state.as_str())) else { return error };
    if columns.is_empty() || error.is_transient() {
        return error;
    }
    let message = if state.starts_with("23") {
        // It names a constraint; values are in its detail.
        error.message
    } else {
        format!(
            "a row cannot be computed or its computed values are refused (SQLSTATE {state}): table {table}, computed columns {}",
            columns.join(", ")
        )
    };
    let hint = "SELECT the same expressions on the source to find the row. Then roll the split back, correct them with shard_split_map(), and start it again.".to_owned();
    RemoteError { message, detail: None, hint: Some(hint), ..error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::split::ColumnMap;
    use crate::error::SqlState;

    fn told(state: &str, expression: Option<&str>) -> RemoteError {
        let map = ColumnMap { column: "c".to_owned(), expression: expression.map(str::to_owned) };
        let policy = PlannedTable {
            ordinal: 1,
            table_name: "t".to_owned(),
            schema: None,
            name: "t".to_owned(),
            shard_by: "k".to_owned(),
            maps: vec![map],
        };
        let error = RemoteError {
            shard: "s".to_owned(),
            sqlstate: Some(SqlState::parse(state)),
            message: "of \"a value\"".to_owned(),
            detail: Some("(a value)".to_owned()),
            hint: None,
            constraint: None,
        };
        without_values(error, "public.t", &policy)
    }

    #[test]
    fn a_computed_column_keeps_values_out_of_errors() {
        for state in ["22P02", "P0001", "XX000", "42804"] {
            let error = told(state, Some("f(x)"));
            assert!(!error.message.contains("value\"") && error.message.contains(state), "{}", error.message);
            assert_eq!(error.detail, None);
        }
        assert_eq!(told("23514", Some("f(x)")).detail, None);
        for (state, expression) in [("22P02", None), ("57014", Some("x")), ("SM006", Some("x"))] {
            assert!(told(state, expression).detail.is_some(), "{state}");
        }
    }
}

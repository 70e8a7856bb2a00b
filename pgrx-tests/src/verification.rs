//! Results of `shard_split_verification`.

use crate::fixture::LIMIT;
use crate::split::Split;
use crate::wait;

/// The result of one table.
#[derive(Debug, PartialEq, Eq)]
pub struct TableVerification {
    pub status: String,
    pub rows: i64,
    pub differing: i64,
    pub key: String,
    pub what: String,
}

/// Requests a verification and waits for its end.
pub fn verify(split: &Split<'_>) -> Vec<TableVerification> {
    split.call("verify").unwrap();
    outcome(split)
}

pub fn outcome(split: &Split<'_>) -> Vec<TableVerification> {
    let query = "SELECT status, rows_compared, differing, coalesce(example_key, ''), coalesce(what, '')
                   FROM shard_split_verification($1)";
    wait::until("the verification to end", LIMIT, || {
        let rows = split.superuser()?.query(query, &[&split.id])?;
        let told: Vec<TableVerification> = rows
            .iter()
            .map(|row| TableVerification {
                status: row.get(0),
                rows: row.get(1),
                differing: row.get(2),
                key: row.get(3),
                what: row.get(4),
            })
            .collect();
        let is_open = told.iter().any(|told| matches!(told.status.as_str(), "pending" | "running"));
        Ok((!is_open && !told.is_empty()).then_some(told))
    })
    .map_err(|e| e.context(&split.describe()))
    .unwrap()
}

pub fn passed(rows: i64) -> Vec<TableVerification> {
    vec![TableVerification {
        status: "passed".into(),
        rows,
        differing: 0,
        key: String::new(),
        what: String::new(),
    }]
}

//! The results of a workload, also in words.

use super::comparison::Comparison;
use super::model::Ledger;
use super::writer::{Ack, Record};
use crate::records::{self, Fact, milliseconds};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub acknowledged: u64,
    /// Rows whose last answer was lost with a connection.
    pub in_doubt: usize,
    /// Rows on all shards.
    pub rows: u64,
    pub lost: u64,
    pub doubled: u64,
    pub misplaced: u64,
    /// The errors of clients, by SQLSTATE.
    pub errors: BTreeMap<String, u64>,
    /// Errors that no client should see.
    pub unexpected: Vec<String>,
    /// The longest time from a client's first attempt to the acknowledgement.
    pub stall_moving: Duration,
    pub stall_staying: Duration,
    /// The first few differences, in words.
    pub examples: Vec<String>,
}

impl Report {
    pub(super) fn new(comparison: Comparison, ledger: &Ledger, records: &[Record]) -> Report {
        let mut errors = BTreeMap::new();
        for (code, count) in records.iter().flat_map(|record| &record.errors) {
            *errors.entry(code.clone()).or_default() += count;
        }
        let acks = || records.iter().flat_map(|record| &record.acks);
        let stall = |moving: bool| {
            let of_kind = acks().filter(|ack: &&Ack| ack.moving == moving);
            of_kind.map(|ack| ack.took).max().unwrap_or_default()
        };
        Report {
            acknowledged: acks().count() as u64,
            in_doubt: ledger.count_in_doubt(),
            rows: comparison.rows,
            lost: comparison.lost,
            doubled: comparison.doubled,
            misplaced: comparison.misplaced,
            errors,
            unexpected: records.iter().flat_map(|record| record.unexpected.iter().cloned()).collect(),
            stall_moving: stall(true),
            stall_staying: stall(false),
            examples: comparison.examples,
        }
    }

    /// Whether no acknowledged write was lost, and no row is there twice or in a wrong place.
    pub fn is_right(&self) -> bool {
        self.lost == 0 && self.doubled == 0 && self.misplaced == 0
    }

    /// Whether the result is right, and no client saw an error that it should not see.
    pub fn is_clean(&self) -> bool {
        self.is_right() && self.unexpected.is_empty()
    }
}

impl Report {
    /// Writes the record for docs/internals/reliability.md.
    pub fn keep(&self) {
        let facts: [Fact<'_>; 6] = [
            ("acknowledged", &self.acknowledged),
            ("lost", &self.lost),
            ("doubled", &self.doubled),
            ("misplaced", &self.misplaced),
            ("moving", &milliseconds(self.stall_moving)),
            ("staying", &milliseconds(self.stall_staying)),
        ];
        records::keep("load", &facts);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors: Vec<String> =
            self.errors.iter().map(|(code, count)| format!("{code}: {count}")).collect();
        let errors = if errors.is_empty() { "none".into() } else { errors.join(", ") };
        let millis = |stall: Duration| format!("{:.1} ms", stall.as_secs_f64() * 1e3);
        let mut line = |name: &str, value: String| writeln!(f, "{name:<38}{value}");
        line("longest write stall, moving tenant", millis(self.stall_moving))?;
        line("longest write stall, staying tenant", millis(self.stall_staying))?;
        line("errors seen by clients, by SQLSTATE", errors)?;
        line("acknowledged writes", self.acknowledged.to_string())?;
        line("rows in doubt (connection lost)", self.in_doubt.to_string())?;
        line("rows compared", self.rows.to_string())?;
        line("lost", self.lost.to_string())?;
        line("doubled", self.doubled.to_string())?;
        line("misplaced", self.misplaced.to_string())?;
        for example in self.examples.iter().chain(self.unexpected.iter().take(12)) {
            writeln!(f, "  {example}")?;
        }
        Ok(())
    }
}

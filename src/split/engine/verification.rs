//! What a worker keeps of a verification between two steps.

use crate::catalog::verification::{RowDifference, Verification, VerificationStatus};

/// When both sides are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Within a step, at its snapshot.
    BeforeCutover,
    /// The source is frozen, and clients write to the target.
    AfterCutover,
}

#[derive(Debug, Default)]
pub struct Run {
    /// The tables that are still to be compared, in their order; the first is next.
    pub tables: Vec<Verification>,
    /// What this step has compared, and the rows that differ.
    pub compared: Vec<(Verification, Vec<RowDifference>)>,
    /// The next table is too big, or differs: its rows are compared, in temporary tables.
    pub wants_tables: bool,
    /// The table for which the sessions have them.
    pub prepared: Option<i32>,
    /// The bytes of the rows that the last step has compared.
    pub step_bytes: i64,
    /// The number of blocks of the next slice.
    pub blocks: i64,
    /// The number of keys of the next range.
    pub keys: i64,
    /// A table whose rows are in another file than those that were compared.
    pub rewritten: Option<i32>,
    /// Why a table could not be compared in this step.
    pub failure: Option<FailedComparison>,
}

/// A comparison that has ended with an error.
#[derive(Debug)]
pub struct FailedComparison {
    pub ordinal: i32,
    pub text: String,
    pub may_pass: bool,
}

impl Run {
    /// Whether rows differ in what this step has compared.
    pub fn has_found(&self) -> bool {
        self.compared.iter().any(|(table, _)| table.differing > 0)
    }

    /// Stores that the first table was compared as a whole, and is the same on both sides.
    pub fn note_same(&mut self, table: Verification, rows: i64, bytes: i64) {
        let status = VerificationStatus::Passed;
        self.note(Verification { rows, bytes, status, ..table }, Vec::new());
    }

    /// Stores the result of a slice of the first table.
    pub fn note(&mut self, table: Verification, found: Vec<RowDifference>) {
        let is_done = matches!(table.status, VerificationStatus::Passed | VerificationStatus::Differs);
        if is_done {
            self.tables.remove(0);
            self.wants_tables = false;
        } else {
            self.tables[0] = table.clone();
        }
        match self.compared.last_mut().filter(|(last, _)| last.ordinal == table.ordinal) {
            Some((last, differences)) => {
                *last = Verification { example: last.example.take().or(table.example.clone()), ..table };
                differences.extend(found);
            }
            None => self.compared.push((table, found)),
        }
    }
}

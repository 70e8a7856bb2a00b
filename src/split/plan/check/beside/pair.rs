//! A table of both sides.

use crate::agent::shape::TableShape;
use crate::catalog::split::PlannedTable;
use crate::split::table::computed;
use std::collections::BTreeSet;

pub struct TablePair<'a> {
    pub position: usize,
    pub policy: &'a PlannedTable,
    pub from: &'a TableShape,
    pub to: &'a TableShape,
}

impl TablePair<'_> {
    /// Whether one of some columns is not copied as it is. Its author has then decided how.
    pub fn is_other(&self, columns: &BTreeSet<String>) -> bool {
        columns.iter().any(|name| {
            computed::is_own(self.policy, name)
                || self.from.column(name).is_none()
                || self.to.column(name).is_none()
        })
    }
}

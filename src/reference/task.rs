//! The task of a step, and what is known of its tables.

use super::install::ReferenceWorker;
use super::table::ReferenceTable;
use crate::catalog::reference::{Member, ReferencePlace, ReferenceSet};
use crate::reference::probe::ReferenceLook;
use std::collections::BTreeSet;

/// What is done, and for which shard.
pub struct Task<'a> {
    pub set: &'a ReferenceSet,
    pub place: &'a ReferencePlace,
    /// The tables that are not the origin's own.
    pub tables: &'a [Member],
    pub by: &'a ReferenceWorker<'a>,
}

/// What was read and found to be suitable.
#[derive(Default)]
pub struct FitTables {
    pub there: ReferenceLook,
    pub here: ReferenceLook,
    pub pairs: Vec<ReferenceTable>,
}

impl FitTables {
    /// Returns the statement that locks the tables which are searched for references to deleted rows against changes,
    /// for use before the code that they could run is checked.
    pub fn referencing(&self) -> String {
        let references = self.pairs.iter().flat_map(|pair| &pair.referenced_by);
        // A table that may not be read is reported when rows have been deleted that it may refer to.
        let references = references.filter(|reference| reference.can_read);
        let names: BTreeSet<&str> = references.map(|reference| reference.from.as_str()).collect();
        if names.is_empty() {
            String::new()
        } else {
            let names: Vec<&str> = names.into_iter().collect();
            format!("LOCK TABLE {} IN ACCESS SHARE MODE", names.join(", "))
        }
    }
}

//! What a step is to do, and what is known of the tables that it does it with.

use super::install::ReferenceWorker;
use super::look::ReferenceLook;
use super::table::ReferenceTable;
use crate::catalog::reference::{Member, ReferencePlace, ReferenceSet};
use std::collections::BTreeSet;

/// What is done, and for whom.
pub struct Task<'a> {
    pub set: &'a ReferenceSet,
    pub place: &'a ReferencePlace,
    /// Those that are not the origin's own.
    pub tables: &'a [Member],
    pub by: &'a ReferenceWorker<'a>,
}

/// What was looked at, and found to be fit.
#[derive(Default)]
pub struct FitTables {
    pub there: ReferenceLook,
    pub here: ReferenceLook,
    pub pairs: Vec<ReferenceTable>,
}

impl FitTables {
    /// The statement by which nobody changes the tables that are asked whether they refer to rows which are gone: before it
    /// is looked at what they could run.
    pub fn referencing(&self) -> String {
        let references = self.pairs.iter().flat_map(|pair| &pair.referenced_by);
        // What may not be read is told when rows have gone that it may refer to.
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

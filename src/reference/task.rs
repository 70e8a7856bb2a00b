//! What a step is to do, and what is known of the tables that it does it with.

use super::install::By;
use super::look::Look;
use super::table::Pair;
use crate::catalog::reference::{Member, Place, Set};
use std::collections::BTreeSet;

/// What is done, and for whom.
pub struct Task<'a> {
    pub set: &'a Set,
    pub place: &'a Place,
    /// Those that are not the origin's own.
    pub tables: &'a [Member],
    pub by: &'a By<'a>,
}

/// What was looked at, and found to be fit.
#[derive(Default)]
pub struct Known {
    pub there: Look,
    pub here: Look,
    pub pairs: Vec<Pair>,
}

impl Known {
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

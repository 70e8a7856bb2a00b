//! What a step is to do, and what is known of the tables that it does it with.

use super::install::By;
use super::look::Look;
use super::table::Pair;
use crate::catalog::reference::{Member, Place, Set};

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

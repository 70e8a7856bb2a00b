//! What a split moves.

use super::interval::Interval;
use super::ordered::Ordered;
use std::num::NonZeroU32;

#[derive(Clone, Debug)]
pub enum Scope {
    /// In canonical form.
    Keys(Vec<String>),
    Buckets {
        of: Ordered,
        count: NonZeroU32,
        buckets: Vec<String>,
    },
    /// In their order.
    Ranges {
        of: Ordered,
        ranges: Vec<Interval>,
    },
}

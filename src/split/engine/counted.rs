//! The contents of windows, counted before it is known whether these windows are the ones to be copied.

use crate::remote::result::Rows;

/// Windows that are counted along with another query, since a snapshot that the target is likely to have.
pub struct Counted {
    pub since: String,
    /// The source's answer in this step's S.
    pub rows: Option<Rows>,
}

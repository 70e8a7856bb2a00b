//! What windows hold, counted before it is known whether it is these that are to come over.

use crate::remote::result::Rows;

/// Windows that are counted along with another question, since a snapshot up to which the target is likely to stand.
pub struct Counted {
    pub since: String,
    /// What the source has said of it in this step's S.
    pub rows: Option<Rows>,
}

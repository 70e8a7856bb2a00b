//! Whether the source of a split shows a master that was restored to an earlier time that a finish has ended there.
//!
//! Invariant: the redirect knows the split's keys after the last row has left, and the source's side goes after that.
//! If the redirect was dropped since, the note of the decision, or of a later one of the keyspace, which names those
//! before it, without that side shows the same: the side of a decided split is removed in no other way, and a source
//! that was restored to an earlier time has no such note. A source that has taken part in later decisions since it was
//! restored has rows that are copies: none of them are deleted.

use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::state::decision;
use crate::agent::state::side::{self, Installed};
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::split::redirect;

/// Returns the version with which the split has taken its keys from the source, if the source still knows it.
pub fn version(source: &mut Connection, plan: &Plan) -> Result<Option<i64>> {
    let known = redirect::known_version(source, plan)?;
    if known.is_some() || side::installed(source, plan, Side::Source)? != Installed::No {
        return Ok(known);
    }
    decision::version_of(source, plan)
}

/// Whether the finish has ended there, for a master that knows the decision with this version.
pub fn is_shown(source: &mut Connection, plan: &Plan, decided: i64) -> Result<bool> {
    if version(source, plan)? == Some(decided) {
        return Ok(true);
    }
    Ok(side::installed(source, plan, Side::Source)? == Installed::No
        && decision::is_past(source, plan, decided)?)
}

//! Whether the source of a split shows that a finish has ended there, to a master that was restored to a time before.
//!
//! Invariant: the redirect knows the split's keys after the last row has left, and the source's side goes after that.
//! Where the redirect was dropped since, the note of the decision, or of a later one of the keyspace, which tells of those before it,
//! without that side says the same: of a decided split it goes in no other way, and a source that was set back to a time before has no
//! such note. One that has taken part in later ones since it was set back has rows that are copies: nothing is deleted of them.

use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::state::decision;
use crate::agent::state::side::{self, Installed};
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::split::redirect;

/// The version with which the split has taken its keys from the source, where it knows that still.
pub fn version(source: &mut Connection, plan: &Plan) -> Result<Option<i64>> {
    let known = redirect::known_version(source, plan)?;
    if known.is_some() || side::installed(source, plan, Side::Source)? != Installed::No {
        return Ok(known);
    }
    decision::version_of(source, plan)
}

/// Whether it has ended there, for a master that knows the decision with this version.
pub fn is_shown(source: &mut Connection, plan: &Plan, decided: i64) -> Result<bool> {
    if version(source, plan)? == Some(decided) {
        return Ok(true);
    }
    Ok(side::installed(source, plan, Side::Source)? == Installed::No
        && decision::is_past(source, plan, decided)?)
}

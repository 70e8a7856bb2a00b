//! A session's temporary tables, by which it asks for rows. They have the types of tables that are looked through before
//! anything is written to them. Of a type that none of these has any more nobody has looked at what it would run by now: a
//! domain may have been given a constraint since.

use super::error::{Result, SplitError};
use super::observe;
use super::session::Side;
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::result::Rows;
use crate::remote::template::{fill, text, texts};

/// All that a session has.
pub const ALL: &str = "";
/// Those of a comparison.
pub const COMPARED: &str = "verify_";

/// The statement that finds one; `which`: with what its name begins.
pub fn asked(plan: &Plan, side: Side, which: &str) -> String {
    let (schemas, names) = observe::table_names(plan, side);
    fill(
        include_str!("../../sql/agent/left_types.sql"),
        &[("which", text(which)), ("schemas", texts(schemas)), ("names", texts(names))],
    )
}

/// Its answer; a worker that begins anew makes them anew.
pub fn require_none(shard: &str, answer: &Rows) -> Result<()> {
    match answer.scalar() {
        None => Ok(()),
        Some(name) => Err(SplitError::Retry(format!(
            "columns of the moving tables on shard \"{shard}\", whose types differ from those {name} was made with"
        ))),
    }
}

/// Asks the session itself.
pub fn require_known(connection: &mut Connection, (plan, side): (&Plan, Side), which: &str) -> Result<()> {
    let answer = connection.run(&asked(plan, side, which))?;
    require_none(connection.shard(), &answer)
}

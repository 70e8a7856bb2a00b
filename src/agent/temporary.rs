//! A session's temporary tables, which it uses to ask for rows. They have the types of tables that are checked before
//! anything is written to them. If none of these has a type any more, the code that it would run was not checked: a
//! domain may have been given a constraint since.

use super::error::{Result, SplitError};
use super::session::Side;
use super::table_names::TableNames;
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::result::Rows;
use crate::remote::template::{fill, text, texts};

/// The prefix for all temporary tables of a session.
pub const ALL: &str = "";
/// The prefix for those of a comparison.
pub const COMPARED: &str = "verify_";

/// Returns the statement that finds one with an unchecked type; `which` is the prefix of the names.
pub fn asked(plan: &Plan, side: Side, which: &str) -> String {
    let TableNames { schemas, names } = TableNames::of(plan, side);
    fill(
        include_str!("../../sql/agent/left_types.sql"),
        &[("which", text(which)), ("schemas", texts(schemas)), ("names", texts(names))],
    )
}

/// Reads the answer. An error makes the worker begin anew and create the tables anew.
pub fn require_none(shard: &str, answer: &Rows) -> Result<()> {
    match answer.scalar() {
        None => Ok(()),
        Some(name) => Err(SplitError::Retry(format!(
            "columns of the moving tables on shard \"{shard}\", whose types differ from those {name} was made with"
        ))),
    }
}

/// Asks the session itself.
pub fn require_known(connection: &mut Connection, plan: &Plan, side: Side, which: &str) -> Result<()> {
    let answer = connection.run(&asked(plan, side, which))?;
    require_none(connection.shard(), &answer)
}

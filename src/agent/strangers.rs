//! What is in the agent's schema that is neither the mover's own nor a superuser's: the mover
//! would call it, with its own rights.

use crate::remote::template::{fill, sql};
use crate::remote::{Connection, RemoteError};
use std::sync::LazyLock;

/// What is there, or NULL; an expression.
pub const STRANGER: &str = include_str!("../../sql/agent/stranger.sql");

/// The same as an error.
pub static REFUSE: LazyLock<String> =
    LazyLock::new(|| fill(include_str!("../../sql/agent/trust.sql"), &[("stranger", sql(STRANGER))]));

pub fn refuse(connection: &mut Connection) -> Result<(), RemoteError> {
    connection.run(&REFUSE).map(drop)
}

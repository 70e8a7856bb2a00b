//! What is in the agent's schema that is neither the mover's own nor a superuser's: the mover
//! would call it, with its own rights.

use super::catalogs;
use crate::remote::{Connection, RemoteError};
use std::sync::LazyLock;

const STRANGER: &str = include_str!("../../sql/agent/stranger.sql");

/// The end of the message with which a session begins: what is there, or nothing.
pub static LOOK: LazyLock<String> = LazyLock::new(|| format!("{}; SELECT {STRANGER}", catalogs::AS_WRITTEN));

/// The same as an error.
pub static REFUSE: LazyLock<String> =
    LazyLock::new(|| include_str!("../../sql/agent/trust.sql").replace("{stranger}", STRANGER));

pub fn refuse(connection: &mut Connection) -> Result<(), RemoteError> {
    connection.run(&REFUSE).map(drop)
}

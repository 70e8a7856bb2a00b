//! What the server's own commands must know of the extension.

/// Chains the hook; called once, from `_PG_init` of the postmaster.
pub fn register() {}

//! libpq: the only networking. Everything that touches a shard goes through here.

pub mod conninfo;

//! libpq: the only networking. Everything that touches a shard goes through here.

mod alive;
mod answer;
pub mod ask;
mod cancel;
pub mod connection;
pub mod conninfo;
pub mod copy;
mod error;
mod flood;
mod hosts;
pub mod number;
mod open;
pub mod quote;
pub mod result;
mod wait;
pub mod wanted;

pub use connection::Connection;
pub use error::RemoteError;

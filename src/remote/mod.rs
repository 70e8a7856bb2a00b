//! libpq: the only networking. All communication with shards goes through here.

mod alive;
mod answer;
pub mod ask;
mod cancel;
pub mod connection;
pub mod conninfo;
pub mod copy;
mod error;
pub mod fan_out;
mod flood;
pub mod gather;
mod hosts;
pub mod interest;
mod many;
pub mod number;
mod open;
pub mod params;
pub mod pipe;
pub mod quote;
pub mod result;
mod secret_file;
pub mod template;
pub mod transaction;
mod undone;
pub mod wait;

pub use answer::FOR_EVER;
pub use connection::Connection;
pub use error::RemoteError;
pub use many::Together;

/// Returns PQlibVersion in the form of PQserverVersion: 150020 for 15.20.
pub fn library_version() -> i32 {
    // SAFETY: this returns a constant of the library.
    unsafe { pq_sys::PQlibVersion() }
}

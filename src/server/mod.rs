//! The foundation of all rooms: the server's own services, in the terms of this library. It knows no table of the
//! catalog and no network.

pub mod data_directory;
pub mod database;
pub mod functions;
pub mod held_run;
pub mod index_scan;
pub mod injection;
pub mod instance;
pub mod preload;
pub mod process;
pub mod retry;
pub mod session_lock;
pub mod settings;
pub mod spawn;
pub mod sql;
pub mod standby;
pub mod txn;
pub mod wait;
pub mod wake;

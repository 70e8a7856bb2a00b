//! Background workers: the launcher, one worker for each active split, and how a
//! session wakes them.

pub mod txn;

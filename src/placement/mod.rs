//! Placement: slots of shards with a capacity, given out by reservations with a lease.
//!
//! Nothing here waits for another transaction's commit, except for the same logical key, the same tenant's quota, and
//! an operator who changes the shard. Locks are taken in one order: logical key, reservation, quota, shard, slot.
//! `docs/guides/place-tenants.md` explains why.

pub mod choose;
pub mod error;
pub mod free_slots;
mod locks;
pub mod quota;
mod rendezvous;
pub mod report;
pub mod reserve;
mod scatter;
pub mod settle;
pub mod shard;
pub mod slot;
pub mod sweep;
pub mod sweep_clock;
pub mod tenants;

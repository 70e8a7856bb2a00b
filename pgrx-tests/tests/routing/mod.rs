//! Which shard has a key or gets a new one, how clients and gateways follow, and how other shards refuse writers.

mod address_aliases;
mod cache_misses;
mod client;
mod endpoints;
mod gateway;
mod guard_changes;
mod guard_splits;
mod key_guards;
mod placement;
mod redirect_ends;
mod redirects;
mod top;
mod versions;

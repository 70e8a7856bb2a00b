//! Rows on the wrong shard: found, moved, deleted.

mod adversarial;
mod concurrent_writes;
mod deletes;
mod detection;
mod in_doubt;
mod moves;
mod tables;

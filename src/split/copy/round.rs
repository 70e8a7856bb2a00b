//! What streams copy once a step is committed.

use super::chunk::Chunk;

/// Chunks that are copied at the same time: the first by the step's own sessions, each other one by a stream.
pub struct Round {
    pub chunks: Vec<Chunk>,
}

//! The results of several COPYs of one message, as far as they are small: with all of them available the other side is
//! also sent one message.

use super::connection::{Connection, IN_ALL};
use super::copy::{Bounds, NextPiece, Which, done, next, started};
use super::error::RemoteError;
use super::flood::Received;
use super::wait::Ready;
use std::time::{Duration, Instant};

/// The result of each.
pub enum Gathered {
    /// Its bytes.
    All(Vec<Vec<u8>>),
    /// The numbers of bytes, which were more than are kept.
    TooMuch(Vec<usize>),
}

/// Runs the COPYs. An error comes with the number of its COPY.
pub fn gather(
    source: &mut Connection,
    outs: &[String],
    most: usize,
    bounds: Bounds,
) -> Result<Gathered, (usize, RemoteError)> {
    source.send(&outs.join("; ")).map_err(|error| (0, error))?;
    let last = outs.len().saturating_sub(1);
    let mut kept = KeptRows { all: Vec::new(), bytes: 0, most, bounds };
    let mut sizes = Vec::new();
    for number in 0..outs.len() {
        let which = if number == last { Which::Last } else { Which::OneOfMany };
        let before = kept.bytes;
        take_one(source, &mut kept, which).map_err(|error| (number, error))?;
        sizes.push(kept.bytes - before);
    }
    Ok(if kept.bytes <= most { Gathered::All(kept.all) } else { Gathered::TooMuch(sizes) })
}

struct KeptRows {
    all: Vec<Vec<u8>>,
    /// The bytes of all that has arrived.
    bytes: usize,
    most: usize,
    bounds: Bounds,
}

impl KeptRows {
    fn add(&mut self, source: &mut Connection, row: &[u8]) -> Result<(), RemoteError> {
        self.bounds.admit(source, row, u64::try_from(self.bytes).unwrap_or(u64::MAX))?;
        self.bytes = self.bytes.saturating_add(row.len());
        if self.bytes > self.most {
            self.all.clear();
        } else if let Some(last) = self.all.last_mut() {
            last.extend_from_slice(row);
        }
        Ok(())
    }
}

fn take_one(source: &mut Connection, kept: &mut KeptRows, which: Which) -> Result<(), RemoteError> {
    let stall = kept.bounds.stall;
    started(source, stall)?;
    kept.all.push(Vec::new());
    let mut received = Received::default();
    let (mut waited, most) = (Duration::ZERO, stall.saturating_mul(IN_ALL));
    loop {
        match next(source) {
            NextPiece::Row(row) => {
                waited = Duration::ZERO;
                kept.add(source, row.bytes())?;
            }
            NextPiece::Wait if waited > most => {
                let error = RemoteError::no_answer(source.shard(), most);
                return Err(source.give_up(error));
            }
            NextPiece::Wait => {
                let from = Instant::now();
                if let Err(error) = source.wait_ready(Ready::Read, stall) {
                    return Err(source.give_up(error));
                }
                let began = Instant::now();
                if kept.bounds.are_announced_to_pass(&received, 1) {
                    return Err(RemoteError::row_too_long(source.shard(), kept.bounds.row));
                }
                source.consume()?;
                waited += began.duration_since(from);
                if kept.bounds.is_passed_by(&mut received, began) {
                    return Err(RemoteError::row_too_long(source.shard(), kept.bounds.row));
                }
            }
            NextPiece::End => return done(source, source.timeout, which).map(drop),
            NextPiece::Failed => return Err(source.last_error()),
        }
    }
}

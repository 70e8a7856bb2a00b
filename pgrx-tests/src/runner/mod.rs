//! Runs tests, each in a process of its own: those that took longest come first, and as many run
//! beside each other as keep the processors busy. What a test takes is what its process and all
//! that it waited for have used: servers, too.

mod child;
mod entry;
mod machine;
mod results;

pub use child::Outcome;
pub use entry::{Entry, Times};
pub use results::Results;

use crate::Result;
use child::Running;
use machine::Processors;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Between two looks at what runs.
const LOOK: Duration = Duration::from_millis(20);
/// Busy enough, that one more would only make the others wait.
const BUSY: f64 = 0.96;
/// Parts of one whole that run beside each other: each has many servers, and waits most of its time.
const PARTS: usize = 2;

/// What the caller says of the run.
pub struct Options {
    /// So many tests run in any case.
    pub least: usize,
    /// So many at most, where processors are idle.
    pub most: usize,
    /// After that a test is ended, and has failed.
    pub limit: Duration,
    /// Where a test's output is put while it runs.
    pub scratch: PathBuf,
}

/// Runs them all. `shown` is given each as soon as it has ended.
pub fn run(entries: Vec<Entry>, options: &Options, mut shown: impl FnMut(&Outcome)) -> Result<Results> {
    let began = Instant::now();
    let before = Processors::now();
    let mut waiting = VecDeque::from(entries);
    let mut running: Vec<Running> = Vec::new();
    let mut outcomes = Vec::new();
    let mut load = machine::Load::begin();
    while !waiting.is_empty() || !running.is_empty() {
        let has_room = running.len() < options.least || (running.len() < options.most && load.is_below(BUSY));
        let fits =
            |entry: &Entry| running.iter().filter(|other| other.is_beside(&entry.name)).count() < PARTS;
        let next = waiting.iter().position(fits);
        if let Some(entry) = next.filter(|_| has_room).and_then(|next| waiting.remove(next)) {
            running.push(Running::start(entry, &options.scratch)?);
            load = machine::Load::begin();
            continue;
        }
        std::thread::sleep(LOOK);
        let mut still = Vec::new();
        for one in running {
            match one.ended(options.limit)? {
                Ok(outcome) => {
                    shown(&outcome);
                    outcomes.push(outcome);
                }
                Err(one) => still.push(one),
            }
        }
        running = still;
    }
    Ok(Results { outcomes, idle: before.idle_since(), took: began.elapsed() })
}
